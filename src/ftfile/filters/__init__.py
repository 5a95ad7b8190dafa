"""Byte filters between the format of a file and storage; they do no I/O."""
