"""`hdfs://`: HDFS by its RPC protocol."""
