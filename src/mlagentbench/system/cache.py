"""The cache folder: downloads, prepared data and runtimes that are kept between runs."""

import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlagentbench.errors import UsageError
from mlagentbench.system.lock import exclusive_lock, try_lock

log = logging.getLogger(__name__)


def cache_dir() -> Path:
    """The cache folder, created if needed and readable by its owner only.

    It is $MLAGENTBENCH_HOME, or `mlagentbench` in the user's cache folder.

    Raises:
        UsageError: The folder cannot be created.
    """
    chosen = os.environ.get("MLAGENTBENCH_HOME")
    folder = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "mlagentbench")
    try:
        folder = folder.expanduser().absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"Cannot use {folder}: {error}. Set MLAGENTBENCH_HOME to a folder you own."
        ) from error
    return folder


@contextmanager
def temporary_dir() -> Iterator[Path]:
    """A temporary folder in the cache. Folders left behind by killed processes are removed on the way."""
    parent = cache_dir() / "temporary"
    folder = parent / secrets.token_hex(8)
    # Without the lock, another process could take the folder for abandoned before it is marked as held.
    with exclusive_lock(cache_dir() / "temporary.lock"):
        parent.mkdir(exist_ok=True)
        for mark in parent.glob("*.held"):
            _remove_if_abandoned(mark)
        mark = folder.with_suffix(".held")
        held = mark.open("w")
        try_lock(held)
        folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        _remove_temporary_dir(mark)
        held.close()


def require_writable_cache() -> None:
    """Raise UsageError now if the cache is read-only, instead of failing later."""
    try:
        with temporary_dir():
            pass
    except OSError as error:
        raise UsageError(
            f"Cannot write to {cache_dir()}: {error.strerror}. Set MLAGENTBENCH_HOME to a folder you own."
        ) from error


def _remove_if_abandoned(mark: Path) -> None:
    """Remove a temporary folder that no live process holds, on this machine or another one."""
    with suppress(OSError), mark.open("w") as file:
        if try_lock(file, timeout_s=0):
            _remove_temporary_dir(mark)


def _remove_temporary_dir(mark: Path) -> None:
    """Remove a folder and its mark; if the folder cannot be removed, keep the mark for the next attempt."""
    folder = mark.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        mark.unlink(missing_ok=True)


def build_once(target: Path, build: Callable[[Path], None]) -> None:
    """Build the folder `target` unless it exists; it appears complete or not at all.

    Args:
        target: The folder to build.
        build: Fills the empty folder that it is given. Runs once, however many processes ask.
    """
    if target.exists():
        return
    with exclusive_lock(target.with_name(f"{target.name}.lock")):
        if target.exists():
            return
        prefix = f"{target.name}.building-"
        for leftover in [path for path in target.parent.iterdir() if path.name.startswith(prefix)]:
            shutil.rmtree(leftover, ignore_errors=True)  # a dying child of the last builder may still write
        building = target.with_name(f"{prefix}{os.getpid()}")
        try:
            log.info("building %s", target)
            building.mkdir()
            build(building)
            building.rename(target)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
