"""A store that is written without Spark."""
