"""One event loop in a thread of its own, on which every hosted model is asked.

Runs are threads, and an agent's own server may ask from yet another; connections belong to the loop that opened them.
A loop of our own lets any thread ask, keeps connections open from call to call, and leaves Ctrl-C to the main thread.
"""

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, suppress
from functools import cache
from typing import Any, TypeVar

ReturnT = TypeVar("ReturnT")
CLOSE_TIMEOUT_S = 2.0  # seconds that connections have to say goodbye


class EventLoopThread:
    """A running loop, and what must be closed on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._entered: dict[int, AbstractAsyncContextManager[Any]] = {}  # by identity: some are not hashable
        self._thread = threading.Thread(target=self._loop.run_forever, name="hosted models", daemon=True)
        self._thread.start()
        atexit.register(self._shut_down)

    def run(self, work: Coroutine[Any, Any, ReturnT]) -> ReturnT:
        """Wait for the work, from any thread; whoever stops waiting stops the work."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def enter(self, thing: AbstractAsyncContextManager[Any]) -> None:
        """Enter something that is closed when the process ends, if not before."""
        self.run(thing.__aenter__())
        self._entered[id(thing)] = thing

    def close(self, thing: AbstractAsyncContextManager[Any]) -> None:
        """Close it without waiting: the collector calls this from any thread, this one's own too."""
        if self._entered.pop(id(thing), None) is not None:
            with suppress(RuntimeError):  # the loop has ended, and everything with it
                self._loop.call_soon_threadsafe(lambda: self._loop.create_task(_close_quietly(thing)))

    def _shut_down(self) -> None:
        async def goodbye() -> None:
            await asyncio.gather(*map(_close_quietly, self._entered.values()))

        with suppress(TimeoutError, CancelledError):
            asyncio.run_coroutine_threadsafe(goodbye(), self._loop).result(CLOSE_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()


async def _close_quietly(thing: AbstractAsyncContextManager[Any]) -> None:
    with suppress(Exception):
        await thing.__aexit__(None, None, None)


@cache
def shared_event_loop() -> EventLoopThread:
    """The loop of this process."""
    return EventLoopThread()
