"""Reads of one version of a store."""
