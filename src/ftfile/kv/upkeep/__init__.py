"""Keeping a store small and its files few: compactions without a batch, purges, other buckets, vacuum by itself."""
