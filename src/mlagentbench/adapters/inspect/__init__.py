"""Inspect: the tasks, agents, grader and sandbox for `inspect eval`, and export of runs as Inspect logs."""

from importlib.util import find_spec

from mlagentbench.errors import UsageError

if find_spec("inspect_ai") is None:
    raise UsageError("Inspect is not installed: pip install 'mlagentbench[inspect]'")
