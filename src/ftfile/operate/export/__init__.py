"""Metadata of other table formats beside the same files, for readers that do not know ftfile."""
