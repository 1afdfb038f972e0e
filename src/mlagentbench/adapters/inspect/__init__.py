"""Inspect: the tasks, agents, grader and sandbox for `inspect eval`, and export of runs as Inspect logs."""

from importlib.util import find_spec

from mlagentbench.errors import UsageError
from mlagentbench.system.extras import install_command

if find_spec("inspect_ai") is None:
    raise UsageError(f"Inspect is not installed: {install_command('inspect')}")
