"""Conditions on files, by the least and the greatest values of their columns."""
