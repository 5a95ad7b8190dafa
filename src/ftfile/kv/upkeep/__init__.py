"""Keeping a store small and its files few: merges without a batch, purges, other buckets, vacuum by itself."""
