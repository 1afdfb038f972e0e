"""Scripted cheaters and vandals, let loose on every task as ordinary agents."""
