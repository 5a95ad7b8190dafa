"""HDFS, by Hadoop's RPC protocol and by WebHDFS."""
