"""Runs: one (run.py), later many."""
