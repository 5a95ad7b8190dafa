"""HDFS, by its RPC protocol and by WebHDFS."""
