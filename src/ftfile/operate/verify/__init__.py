"""Verifying a directory: files on storage are compared with the log. Nothing is written."""
