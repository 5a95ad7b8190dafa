"""Values and rules that every layer shares; standard library and a fast checksum only, no I/O."""
