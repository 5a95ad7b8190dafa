"""Reading a store: single keys, many keys, ranges of keys, as of a version."""
