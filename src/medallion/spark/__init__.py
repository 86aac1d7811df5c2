"""Wrappers of Spark: session, streaming queries, checkpoints, errors."""
