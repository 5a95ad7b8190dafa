"""`webhdfs://`: HDFS over HTTP."""
