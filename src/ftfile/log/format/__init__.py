"""The format of the log: all bytes and paths."""
