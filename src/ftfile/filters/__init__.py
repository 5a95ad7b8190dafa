"""Byte filters between the format of a file and storage, without I/O."""
