"""Records as bytes of the user's own."""
