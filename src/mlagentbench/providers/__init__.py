"""Hosted models: their names and keys, how they are reached, and what is done when that fails."""
