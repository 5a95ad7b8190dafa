"""Maintenance whose work is done by the tasks of a cluster."""
