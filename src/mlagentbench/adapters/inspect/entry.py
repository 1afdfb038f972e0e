"""The entry point that Inspect loads: the tasks and the sandbox."""

from mlagentbench.adapters.inspect.sandbox import BubblewrapSandbox
from mlagentbench.adapters.inspect.tasks import folder_task, suite_tasks

__all__ = ["BubblewrapSandbox", "folder_task", "suite_tasks"]
