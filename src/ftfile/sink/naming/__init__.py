"""Names of parts."""
