"""A task of a write: its rows as runs, and its share of the due jobs."""
