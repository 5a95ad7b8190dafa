"""New content in a listing: which known file goes on there, and how far it may be read."""
