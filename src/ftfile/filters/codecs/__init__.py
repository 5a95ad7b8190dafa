"""Compression codecs, each a byte filter."""
