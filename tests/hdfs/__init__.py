"""A real HDFS on this machine, and the tests that need it."""
