"""The choice of the runs to compact, and of the runs that replace them."""
