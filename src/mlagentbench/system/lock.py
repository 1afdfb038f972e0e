"""File locks. The kernel releases a lock when its holder dies."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LOCK_TIMEOUT_S = 0.5  # enough for a dying holder to be gone, or for one that only checks the lock
RETRY_INTERVAL_S = 0.02


def try_lock(file: IO[str], shared: bool = False, timeout_s: float = LOCK_TIMEOUT_S) -> bool:
    """Lock an open file until it is closed.

    Args:
        file: The open file to lock.
        shared: Allow other shared holders; by default the lock is exclusive.
        timeout_s: How long to wait for the current holder.

    Returns:
        Whether the lock was acquired.
    """
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(file, operation | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(RETRY_INTERVAL_S)


def is_locked(path: Path) -> bool:
    """Whether another process or thread holds the file exclusively; checks do not block each other."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


@contextmanager
def exclusive_lock(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold `path` exclusively among all processes and threads, waiting as long as necessary.

    Args:
        path: The lock file. It is created if needed and never removed: a waiting process would then
            lock a file that later ones cannot open.
        on_wait: Called once if another holder makes us wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        if not try_lock(file, timeout_s=0):
            if on_wait:
                on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
