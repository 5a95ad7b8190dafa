"""Verification of a directory, which compares files on storage with the log and writes nothing."""
