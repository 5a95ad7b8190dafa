"""The run file: sorted rows in blocks, with pages that find the row of a key by its hash."""
