"""A keyed table on the log: rows by key, each in a bucket, in sorted runs that jobs merge."""
