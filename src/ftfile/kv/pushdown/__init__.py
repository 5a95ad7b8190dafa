"""The part of a store to read for conditions on its key columns, and the share of each task."""
