"""The only code that knows pyspark."""
