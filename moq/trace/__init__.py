"""Traces for Spark: what happened to each delivered message, as Parquet files; see docs/reference/trace.md."""
