"""The maintenance of a session's streams in the driver's program, by `attach`."""
