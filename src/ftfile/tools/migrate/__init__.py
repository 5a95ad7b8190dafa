"""Migrating: the files of another program become a directory of ftfile by one record; nothing is copied."""
