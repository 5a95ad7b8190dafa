"""The write path: Arrow batches to staged parts in the tasks, one commit in the driver. No Spark in sight."""
