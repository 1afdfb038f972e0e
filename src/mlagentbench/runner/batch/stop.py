"""Asks whoever works on a run or a batch to stop, and waits until it has."""

import time
from collections.abc import Iterator
from pathlib import Path

from mlagentbench.errors import UsageError
from mlagentbench.locks import held
from mlagentbench.stopping import FILE

PATIENCE = 60.0  # seconds
LOCKS = ("batch.lock", "run.lock")


def stop(path: Path) -> tuple[list[Path], list[Path]]:
    """What has stopped, and what is still at something that cannot be cut short; both can be resumed."""
    asked = list(_held(path))
    if not asked:
        raise UsageError(f"nothing is going on in {path}")
    try:
        for lock in asked:
            (lock.parent / FILE).touch()
    except OSError as error:
        raise UsageError(f"{path} cannot be asked to stop: {error.strerror}") from error
    deadline = time.monotonic() + PATIENCE
    while any(map(held, asked)) and time.monotonic() < deadline:
        time.sleep(0.1)
    still = [lock for lock in asked if held(lock)]
    for lock in asked:
        if lock not in still:
            (lock.parent / FILE).unlink(missing_ok=True)
    return [lock.parent for lock in asked if lock not in still], [lock.parent for lock in still]


def _held(path: Path) -> Iterator[Path]:
    """The lock of a batch or a run; of a folder of runs, those of the runs in it."""
    if not path.is_dir():
        raise UsageError(f"there is no folder {path}")
    own = [path / name for name in LOCKS if (path / name).is_file()]
    for lock in own or sorted(path.glob("*/*.lock")):
        if lock.name in LOCKS and held(lock):
            yield lock
