"""Shared by formats: writers and readers of lines and columns, segments, checks."""
