"""What Inspect loads by the entry point: the tasks, and the sandbox."""

from mlagentbench.adapters.inspect.sandbox import BubblewrapSandbox
from mlagentbench.adapters.inspect.tasks import folder, suite

__all__ = ["BubblewrapSandbox", "folder", "suite"]
