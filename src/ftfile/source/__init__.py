"""Files of other programs as a stream."""
