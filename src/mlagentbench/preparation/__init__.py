"""Turns a task's sources into the public data that an agent gets and the private answers that it does not."""
