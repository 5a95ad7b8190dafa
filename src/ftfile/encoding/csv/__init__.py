"""CSV as Spark writes and reads it."""
