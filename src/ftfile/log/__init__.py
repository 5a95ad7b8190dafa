"""The log of a directory and the exactly-once protocol, independent of rows and file formats."""
