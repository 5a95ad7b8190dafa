"""Calls of a store: deadlines, retries, translation of errors, parallel."""
