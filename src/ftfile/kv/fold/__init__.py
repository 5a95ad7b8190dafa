"""Rows of several runs to one row a key."""
