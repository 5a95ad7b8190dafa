"""A store written without Spark: changes in memory, a log of windows, and commits of all windows up to a number."""
