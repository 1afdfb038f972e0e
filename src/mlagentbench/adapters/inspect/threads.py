"""Runs synchronous work in threads, since Inspect is asynchronous; every sample can have its own."""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

ReturnT = TypeVar("ReturnT")


async def run_in_thread(work: Callable[[], ReturnT]) -> ReturnT:
    """Run `work` in a new thread, without a limit on their number; cancelling does not wait for it."""
    return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=CapacityLimiter(1))
