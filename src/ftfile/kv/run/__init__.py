"""The run file: sorted rows in an Arrow file, with pages that find the row of a key by its hash."""
