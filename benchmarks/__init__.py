"""Benchmarks of ftfile beside Spark's own file sink and beside a Python sink that does nothing.

``python -m benchmarks`` runs all of them. Only ratios within one run mean something: the JVM and the
machine drift by more than most differences between two runs.
"""
