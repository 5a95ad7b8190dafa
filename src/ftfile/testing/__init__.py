"""A test kit for extensions of ftfile and for programs that use it."""
