"""Writing the rows of files of other programs to a directory."""
