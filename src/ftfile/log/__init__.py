"""The log of a directory and the exactly-once protocol: no Arrow, no rows, opaque payloads."""
