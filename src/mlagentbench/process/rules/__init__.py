"""Rules that produce findings: one file per rule, with a function named like the file."""
