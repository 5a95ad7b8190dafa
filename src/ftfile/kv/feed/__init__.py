"""The change feed of a store: old and new values of the keys that each version changes."""
