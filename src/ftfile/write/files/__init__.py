"""The write path of files: tasks turn Arrow batches into staged parts, and the driver commits them, without Spark APIs."""
