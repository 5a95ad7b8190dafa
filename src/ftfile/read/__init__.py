"""The read path: a snapshot of the log to Arrow batches. No Spark in sight."""
