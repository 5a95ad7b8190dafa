"""The driver's side: messages to one commit."""
