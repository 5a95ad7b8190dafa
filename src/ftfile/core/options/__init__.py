"""The options of sources and sinks: their table, their classes, and their parsing."""
