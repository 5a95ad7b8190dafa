"""Which runs are to be compacted, and what replaces them."""
