"""Rewriting of files by the tasks of an operation."""
