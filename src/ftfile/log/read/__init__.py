"""Snapshots for readers, from ranges and the records after them."""
