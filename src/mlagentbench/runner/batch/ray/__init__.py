"""Batches on a Ray cluster. Imported only for `--on ray`."""
