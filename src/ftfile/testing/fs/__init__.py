"""File systems for tests: in memory, crashing, faulty."""
