"""Runs in files: written to a stage, and opened where they lie."""
