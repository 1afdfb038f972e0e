"""One event loop in a background thread, which makes all requests to hosted models.

Runs are threads, and an agent's own server may send requests from yet another thread, but a connection
belongs to the event loop that opened it. With a shared loop any thread can make requests, connections stay
open between calls, and Ctrl-C is left to the main thread.

`anyio.from_thread.start_blocking_portal` does not replace this class: a portal refuses calls from its own
thread, where the garbage collector may run `close`, and waits without a timeout for its thread at exit.
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
CLOSE_TIMEOUT_S = 2.0


class EventLoopThread:
    """A running event loop, and the context managers that must be closed on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._entered: dict[int, AbstractAsyncContextManager[Any]] = {}  # by id(): some are not hashable
        self._thread = threading.Thread(target=self._loop.run_forever, name="hosted models", daemon=True)
        self._thread.start()
        atexit.register(self._shut_down)

    def run(self, coroutine: Coroutine[Any, Any, ReturnT]) -> ReturnT:
        """Run a coroutine and wait for its result, from any thread; an interrupted wait cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def enter(self, context: AbstractAsyncContextManager[Any]) -> None:
        """Enter a context manager, which is closed at exit unless it is closed earlier."""
        self.run(context.__aenter__())
        self._entered[id(context)] = context

    def close(self, context: AbstractAsyncContextManager[Any]) -> None:
        """Close a context manager without waiting: the garbage collector may call this in any thread."""
        if self._entered.pop(id(context), None) is not None:
            with suppress(RuntimeError):  # the loop is closed already, and so is everything on it
                self._loop.call_soon_threadsafe(lambda: self._loop.create_task(_close_quietly(context)))

    def _shut_down(self) -> None:
        async def close_all() -> None:
            await asyncio.gather(*map(_close_quietly, self._entered.values()))

        with suppress(TimeoutError, CancelledError):
            asyncio.run_coroutine_threadsafe(close_all(), self._loop).result(CLOSE_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()


async def _close_quietly(context: AbstractAsyncContextManager[Any]) -> None:
    with suppress(Exception):
        await context.__aexit__(None, None, None)


@cache
def shared_event_loop() -> EventLoopThread:
    """The event loop of this process."""
    return EventLoopThread()
