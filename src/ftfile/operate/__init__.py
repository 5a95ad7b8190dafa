"""Maintenance operations on a directory, each of which commits a record while queries run."""
