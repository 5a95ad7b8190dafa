"""Decoding of files of other programs into plain bytes, lines and rows."""
