"""Locks on files, which the kernel lets go when their holder dies."""

import fcntl
import time
from pathlib import Path
from typing import IO

LOCK_TIMEOUT_S = 0.5  # seconds: a dying holder, or one who only looks whether it is held, is gone by then


def try_lock(file: IO[str], shared: bool = False) -> bool:
    """Hold an open file until it is closed, if nobody else does: alone, or together with others who share it."""
    way = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(file, way | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)


def is_locked(path: Path) -> bool:
    """Whether somebody holds it; those who look do not hinder each other."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False
