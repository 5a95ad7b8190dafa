"""A store written by windows, without Spark: puts in memory, a log of windows, and commits of all up to one."""
