"""What the loop of `reglet.train` is made of, one concept a file."""
