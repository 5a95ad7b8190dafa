"""The pieces of an operation, done side by side, and how far it is."""
