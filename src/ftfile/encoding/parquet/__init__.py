"""Parquet files, also with modular encryption."""
