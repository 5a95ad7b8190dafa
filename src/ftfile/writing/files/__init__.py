"""The write path of files, without Spark APIs."""
