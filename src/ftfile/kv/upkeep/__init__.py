"""Maintenance of a store: compactions without a batch, purges, changes of the number of buckets, automatic vacuum."""
