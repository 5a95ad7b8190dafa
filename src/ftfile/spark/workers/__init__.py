"""The start and the tuning of the Python processes that Spark starts."""
