"""Maintenance of a directory as a library: each operation is a record beside those of running queries."""
