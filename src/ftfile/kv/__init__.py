"""A keyed store on the log: sorted runs of rows, in buckets by the hash of their keys."""
