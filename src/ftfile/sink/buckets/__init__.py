"""Buckets: in which directory, and in files of which name, each row is written."""
