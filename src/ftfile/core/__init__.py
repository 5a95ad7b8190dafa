"""Values and rules that every layer shares, which need the standard library and a fast checksum, and no I/O."""

__version__ = "0.1.0"  # of this package, its only spelling
