"""One file an attack: it is found by its name."""
