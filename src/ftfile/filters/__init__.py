"""Byte filters: what happens to the bytes of a file between its format and storage. No I/O in any of them."""
