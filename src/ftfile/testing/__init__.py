"""A kit for tests: file systems that crash or fail, contract suites, batches without a JVM."""
