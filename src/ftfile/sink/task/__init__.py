"""The executor's side: rows to staged parts and segments."""
