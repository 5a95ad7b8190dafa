"""The report: one HTML page about a directory or a store, with plots, tables, and warnings with their remedies."""
