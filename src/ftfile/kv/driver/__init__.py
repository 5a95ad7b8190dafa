"""The driver's side of a store: from messages, or runs staged otherwise, to the body of a record."""
