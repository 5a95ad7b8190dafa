"""Random histories of a directory: everything that may be done to it, in any order, and what must hold after it."""
