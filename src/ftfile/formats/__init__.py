"""File formats: Arrow batches to bytes and back."""
