"""Asks the process that works on a run or a batch to stop, and waits until it has."""

import time
from collections.abc import Iterator
from pathlib import Path

from mlagentbench.errors import UsageError
from mlagentbench.system.lock import is_locked
from mlagentbench.system.stop_token import STOP_FILE

STOP_TIMEOUT_S = 60.0
LOCK_FILES = ("batch.lock", "run.lock")


def request_stop(path: Path) -> tuple[list[Path], list[Path]]:
    """Stop the batch, the run, or all runs in a folder.

    Returns:
        The folders of what has stopped, and of what is still in an operation that cannot be interrupted.

    Raises:
        UsageError: Nothing is running there.
    """
    locks = list(_held_locks(path))
    if not locks:
        raise UsageError(f"Nothing is running in {path}")
    try:
        for lock in locks:
            (lock.parent / STOP_FILE).touch()
    except OSError as error:
        raise UsageError(f"Cannot request a stop in {path}: {error.strerror}") from error
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while any(map(is_locked, locks)) and time.monotonic() < deadline:
        time.sleep(0.1)
    still_held = [lock for lock in locks if is_locked(lock)]
    released = [lock for lock in locks if lock not in still_held]
    for lock in released:
        (lock.parent / STOP_FILE).unlink(missing_ok=True)
    return [lock.parent for lock in released], [lock.parent for lock in still_held]


def _held_locks(path: Path) -> Iterator[Path]:
    """Find the held lock of a batch or a run, or those of the runs in a folder."""
    if not path.is_dir():
        raise UsageError(f"No such folder: {path}")
    own_locks = [path / name for name in LOCK_FILES if (path / name).is_file()]
    for lock in own_locks or sorted(path.glob("*/*.lock")):
        if lock.name in LOCK_FILES and is_locked(lock):
            yield lock
