"""Every byte and path of the log."""
