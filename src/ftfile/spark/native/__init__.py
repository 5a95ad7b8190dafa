"""The parts of `ftfile.spark.load`."""
