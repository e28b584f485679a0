"""Consistent checkpoints of running PySpark streams."""
