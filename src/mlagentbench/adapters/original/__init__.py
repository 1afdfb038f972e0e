"""Imports log folders of the original MLAgentBench (snap-stanford) as run folders."""
