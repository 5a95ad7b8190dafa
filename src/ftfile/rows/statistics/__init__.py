"""Statistics of the rows of a file, by column, as the log contains them."""
