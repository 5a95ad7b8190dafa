"""File systems with one interface, a driver for each kind of store, and decorators for retries."""
