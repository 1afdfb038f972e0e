"""A run as one zip file: write it, check it, read it."""
