"""Modules for the tasks and the driver of all writers: identity, messages, fingerprints, staging, schema changes."""
