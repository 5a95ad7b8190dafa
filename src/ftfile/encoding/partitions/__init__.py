"""Hive-style directories: values of partition columns in paths."""
