"""Networks for what is not an image label, small: a room for each kind of data, a file for each network."""
