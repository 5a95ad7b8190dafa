"""Metrics of directories: for Prometheus, for OpenTelemetry, and as lines of the log."""
