"""Tools for people and for other engines."""
