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

Answer = TypeVar("Answer")
GRACE = 2.0  # seconds that connections have to say goodbye


class Loop:
    """A running loop, and what must be closed on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._open: dict[int, AbstractAsyncContextManager[Any]] = {}  # by identity: some are not hashable
        self._thread = threading.Thread(target=self._loop.run_forever, name="hosted models", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def complete(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Wait for the work, from any thread; whoever stops waiting stops the work."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def open(self, thing: AbstractAsyncContextManager[Any]) -> None:
        """Enter something that is closed when the process ends, if not before."""
        self.complete(thing.__aenter__())
        self._open[id(thing)] = thing

    def close(self, thing: AbstractAsyncContextManager[Any]) -> None:
        """Close it without waiting: the collector calls this from any thread, this one's own too."""
        if self._open.pop(id(thing), None) is not None:
            with suppress(RuntimeError):  # the loop has ended, and everything with it
                self._loop.call_soon_threadsafe(lambda: self._loop.create_task(_closed(thing)))

    def _end(self) -> None:
        async def goodbye() -> None:
            await asyncio.gather(*map(_closed, self._open.values()))

        with suppress(TimeoutError, CancelledError):
            asyncio.run_coroutine_threadsafe(goodbye(), self._loop).result(GRACE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(GRACE)
        if not self._thread.is_alive():
            self._loop.close()


async def _closed(thing: AbstractAsyncContextManager[Any]) -> None:
    with suppress(Exception):
        await thing.__aexit__(None, None, None)


@cache
def loop() -> Loop:
    """The loop of this process."""
    return Loop()
