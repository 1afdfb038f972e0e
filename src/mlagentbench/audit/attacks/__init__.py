"""The attacks, one file each, found by file name."""
