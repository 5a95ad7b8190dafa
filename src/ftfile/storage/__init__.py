"""File systems with one interface, a driver for each kind of storage, and decorators for retries."""
