"""Following an ftfile directory: the new rows of each version, once."""
