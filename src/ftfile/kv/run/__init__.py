"""The file format of runs."""
