"""The files that an agent works on, and their history."""
