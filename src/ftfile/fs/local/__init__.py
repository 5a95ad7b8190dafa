"""The local file system."""
