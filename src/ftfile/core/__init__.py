"""Values and rules that every layer shares; standard library and a fast checksum only, no I/O."""

__version__ = "0.1.0"  # of this package, its only spelling
