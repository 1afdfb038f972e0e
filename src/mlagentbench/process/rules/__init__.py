"""Error modes: one file a rule, one function, named as its file."""
