"""Verifying a directory: what is on storage, held against what the log says. Nothing is written."""
