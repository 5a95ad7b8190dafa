"""Foreign files as a stream: what is there, what is new of it, and the rows of a range."""
