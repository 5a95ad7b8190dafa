"""Assembling files from the segments of files that stay open."""
