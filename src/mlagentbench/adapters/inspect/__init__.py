"""Inspect: our tasks, agents, grader and sandbox where people run `inspect eval`; and our runs as its logs."""

from importlib.util import find_spec

from mlagentbench.errors import UsageError

if find_spec("inspect_ai") is None:
    raise UsageError("Inspect is not installed: pip install 'mlagentbench[inspect]'")
