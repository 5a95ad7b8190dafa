"""The write path of files, without Spark APIs: tasks stage parts, and the driver commits them."""
