"""Ledgers and runs as Hive-partitioned Parquet, which any engine that reads a lake can query."""
