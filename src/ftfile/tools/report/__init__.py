"""A directory or a store as one page of HTML: plots, tables, and warnings with what to do."""
