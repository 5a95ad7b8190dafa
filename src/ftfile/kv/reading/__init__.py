"""Reads of a store as of a version: single keys, many keys, and key ranges."""
