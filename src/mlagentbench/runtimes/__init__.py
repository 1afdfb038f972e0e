"""Pinned Python environments in which agents' code runs."""
