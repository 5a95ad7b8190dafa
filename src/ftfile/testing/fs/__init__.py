"""File systems for tests: in memory, with crashes, and with faults."""
