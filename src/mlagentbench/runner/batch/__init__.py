"""Batches: a plan, its jobs, and the folder that holds their runs."""
