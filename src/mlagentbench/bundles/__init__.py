"""Bundles: a run exported as one zip file, and read back with checks."""
