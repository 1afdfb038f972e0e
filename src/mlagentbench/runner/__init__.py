"""Runs agents on tasks: one run (run.py), or many (batch/)."""
