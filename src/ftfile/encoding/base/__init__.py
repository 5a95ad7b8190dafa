"""What formats share: writers and readers of lines and columns, segments, checks."""
