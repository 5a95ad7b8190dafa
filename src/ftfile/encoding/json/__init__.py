"""JSON lines as Spark writes and reads them."""
