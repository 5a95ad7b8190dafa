"""Metrics of directories for Prometheus, for OpenTelemetry, and as lines in the log."""
