"""The format of the log."""
