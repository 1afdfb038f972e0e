"""Soak test: thousands of short runs while processes are killed, resources run out and models misbehave."""
