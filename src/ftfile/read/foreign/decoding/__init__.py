"""The content of foreign files: plain bytes, lines of them, and rows."""
