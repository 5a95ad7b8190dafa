"""Writing of rows by any Python program, without Spark."""
