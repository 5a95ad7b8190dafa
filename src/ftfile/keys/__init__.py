"""Keys: where they come from, what is derived from them. They are in memory only, never on storage or in a message."""
