"""The one folder where downloads, prepared data and runtimes are kept between runs."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlagentbench.errors import UsageError


def cache_dir() -> Path:
    """$MLAGENTBENCH_HOME, or mlagentbench in the user's cache folder; readable by its owner only."""
    chosen = os.environ.get("MLAGENTBENCH_HOME")
    folder = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "mlagentbench")
    try:
        folder = folder.expanduser().absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"cannot use {folder}: {error}; set MLAGENTBENCH_HOME to a folder of yours"
        ) from error
    return folder


@contextmanager
def exclusive_lock(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold `path` alone among all processes and threads; the kernel lets go when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:  # never removed: a waiter would hold a file that no newcomer can find
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait:
                on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def temporary_dir() -> Iterator[Path]:
    """A folder for a while; what a killed process left of its own, the next one removes."""
    place = cache_dir() / "temporary"
    folder = place / secrets.token_hex(8)
    with exclusive_lock(
        cache_dir() / "temporary.lock"
    ):  # or somebody takes a folder for left behind before it is held
        place.mkdir(exist_ok=True)
        for mark in place.glob("*.held"):
            _remove_if_abandoned(mark)
        mark = folder.with_suffix(".held")
        held = mark.open("w")
        fcntl.flock(held, fcntl.LOCK_EX)
        folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        _remove_temporary_dir(mark)
        held.close()


def require_writable_cache() -> None:
    """Refuse a cache that can only be read, before anything begins that would fail over it."""
    try:
        with temporary_dir():
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write to {cache_dir()}: {error.strerror}; set MLAGENTBENCH_HOME to a folder of yours"
        ) from error


def _remove_if_abandoned(mark: Path) -> None:
    """Remove a folder that nobody holds: the kernel lets go of what the dead held, whatever machine they were on."""
    with suppress(OSError), mark.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_temporary_dir(mark)


def _remove_temporary_dir(mark: Path) -> None:
    """What cannot be removed now, for want of files perhaps, keeps its mark, so that the next one tries again."""
    folder = mark.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        mark.unlink(missing_ok=True)


def build_once(target: Path, make: Callable[[Path], None]) -> None:
    """Make the folder `target` once, whoever asks and however often; it appears whole or not at all."""
    if target.exists():
        return
    with exclusive_lock(target.with_name(f"{target.name}.lock")):
        if target.exists():
            return
        prefix = f"{target.name}.building-"
        for leftover in [path for path in target.parent.iterdir() if path.name.startswith(prefix)]:
            shutil.rmtree(leftover, ignore_errors=True)  # a dying child of the dead builder may still write
        building = target.with_name(f"{prefix}{os.getpid()}")
        try:
            building.mkdir()
            make(building)
            building.rename(target)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
