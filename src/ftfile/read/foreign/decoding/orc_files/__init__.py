"""Metadata of ORC files, and the times in them that Arrow cannot read."""
