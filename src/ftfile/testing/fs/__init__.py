"""File systems for tests, with crashes and injected faults."""
