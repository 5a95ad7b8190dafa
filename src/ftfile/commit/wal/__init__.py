"""Files of windows that are durable before a record has them: frames of bytes, sealed where the log is."""
