"""The read path: from a snapshot of the log to Arrow batches, without Spark."""
