"""Hosted models: provider names and keys, connections, and error handling."""
