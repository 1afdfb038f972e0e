"""Measure AI research agents on machine-learning tasks."""

__version__ = "0.1.0"
