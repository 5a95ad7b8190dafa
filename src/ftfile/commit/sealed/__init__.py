"""Encrypted directories: authenticated records, keyed fingerprints."""
