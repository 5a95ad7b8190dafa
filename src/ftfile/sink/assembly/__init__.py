"""Parts made of the segments of due groups."""
