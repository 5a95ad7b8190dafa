"""The HTML page about a directory or a store."""
