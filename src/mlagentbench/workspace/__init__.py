"""The files that an agent may touch, and their history."""
