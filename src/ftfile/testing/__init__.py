"""A test kit: file systems that crash or fail, contract suites for extensions, and batches without a JVM."""
