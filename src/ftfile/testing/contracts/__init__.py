"""Contract suites: what a driver must keep."""
