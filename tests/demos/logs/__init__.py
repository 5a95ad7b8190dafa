"""Log collection as people do it: two logs that are rotated, a stream that tails them and is killed, every line once.

``python -m tests.demos.logs``. A process of its own writes and rotates the logs all the time; a Spark application tails
them into Parquet and is SIGKILLed in chosen moments. At the end DuckDB compares the lines that lie in the log files
with those in Parquet.
"""
