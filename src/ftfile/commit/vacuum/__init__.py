"""Vacuum: files that nothing needs are found, and deleted, beside running queries."""
