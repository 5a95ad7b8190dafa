"""The files whose state the plans of a source record."""
