"""Snapshots for readers, from compacted logs and the records after them."""
