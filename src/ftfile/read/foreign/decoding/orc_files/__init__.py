"""The ends of ORC files, and the times in them that Arrow does not read."""
