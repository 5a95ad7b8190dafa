"""Tokens and keytabs for an HDFS with Kerberos."""
