"""Files of other programs as a stream: their listing, the new content of each file, and the rows of a range."""
