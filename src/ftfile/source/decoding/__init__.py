"""Decoding of foreign files into plain bytes, lines and rows."""
