"""Formats: Arrow batches to bytes and back."""
