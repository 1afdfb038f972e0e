"""The entry point that Inspect loads: the tasks and the sandbox."""

from mlagentbench.adapters.inspect.sandbox import InspectBubblewrapSandbox
from mlagentbench.adapters.inspect.tasks import folder_task, suite_tasks

__all__ = ["InspectBubblewrapSandbox", "folder_task", "suite_tasks"]
