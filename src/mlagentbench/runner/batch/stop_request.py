"""Asks whoever works on a run or a batch to stop, and waits until it has."""

import time
from collections.abc import Iterator
from pathlib import Path

from mlagentbench.errors import UsageError
from mlagentbench.system.lock import is_locked
from mlagentbench.system.stop_token import STOP_FILE

STOP_TIMEOUT_S = 60.0  # seconds
LOCK_FILES = ("batch.lock", "run.lock")


def request_stop(path: Path) -> tuple[list[Path], list[Path]]:
    """What has stopped, and what is still at something that cannot be cut short; both can be resumed."""
    asked = list(_held_locks(path))
    if not asked:
        raise UsageError(f"nothing is going on in {path}")
    try:
        for lock in asked:
            (lock.parent / STOP_FILE).touch()
    except OSError as error:
        raise UsageError(f"{path} cannot be asked to stop: {error.strerror}") from error
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while any(map(is_locked, asked)) and time.monotonic() < deadline:
        time.sleep(0.1)
    still = [lock for lock in asked if is_locked(lock)]
    for lock in asked:
        if lock not in still:
            (lock.parent / STOP_FILE).unlink(missing_ok=True)
    return [lock.parent for lock in asked if lock not in still], [lock.parent for lock in still]


def _held_locks(path: Path) -> Iterator[Path]:
    """The lock of a batch or a run; of a folder of runs, those of the runs in it."""
    if not path.is_dir():
        raise UsageError(f"there is no folder {path}")
    own = [path / name for name in LOCK_FILES if (path / name).is_file()]
    for lock in own or sorted(path.glob("*/*.lock")):
        if lock.name in LOCK_FILES and is_locked(lock):
            yield lock
