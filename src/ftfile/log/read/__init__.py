"""Snapshots for readers: ranges and the records after them."""
