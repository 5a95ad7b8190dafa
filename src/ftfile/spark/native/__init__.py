"""`ftfile.spark.load`: one version as a DataFrame, read by Spark's own sources where they read the same rows."""
