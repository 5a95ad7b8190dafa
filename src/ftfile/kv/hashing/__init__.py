"""Spark's `xxhash64` of keys: of the rows of Arrow columns, and of one key."""
