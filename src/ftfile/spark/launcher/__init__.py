"""The program that starts Spark's Python processes without Spark's archives of pyspark."""
