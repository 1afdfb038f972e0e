"""Endurance: thousands of short runs while processes are killed, resources end and models misbehave."""
