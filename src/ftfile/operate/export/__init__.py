"""Metadata of other table formats for the same files, for readers that do not support ftfile."""
