"""Networks of the tasks: a folder for each kind of data, a file for each network."""
