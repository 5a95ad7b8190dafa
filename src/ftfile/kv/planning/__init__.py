"""Which runs are to be merged, and by what a merge replaces them."""
