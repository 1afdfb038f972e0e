"""Scripted attacks that run against every task as ordinary agents."""
