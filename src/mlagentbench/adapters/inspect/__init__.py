"""Inspect: our tasks, agents, grader and sandbox where people run `inspect eval`; and our runs as its logs."""
