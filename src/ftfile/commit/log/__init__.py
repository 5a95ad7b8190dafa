"""The log of a directory: state, bases, hints."""
