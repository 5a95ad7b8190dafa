"""Log collection: two rotated logs, a stream that tails them and is killed, and a count of every line.

``python -m tests.demos.logs``. A separate process writes and rotates the logs all the time. A Spark application tails
them into Parquet and is SIGKILLed in chosen moments. At the end DuckDB compares the lines in the log files with the
lines in Parquet.
"""
