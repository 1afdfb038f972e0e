"""Inspect is asynchronous and we are not: our work is done in threads, as many as there are samples."""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

ReturnT = TypeVar("ReturnT")


async def run_in_thread(work: Callable[[], ReturnT]) -> ReturnT:
    """Do it in a thread of its own, however many there are; who is cancelled meanwhile does not wait for it."""
    return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=CapacityLimiter(1))
