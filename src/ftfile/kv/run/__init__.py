"""The run file: sorted rows in blocks, and pages that locate the row of a key by its hash."""
