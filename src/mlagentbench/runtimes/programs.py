"""Programs of external agents: locked, installed once into the cache, and mounted read-only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from blake3 import blake3

from mlagentbench.system.cache import build_once, cache_dir

Mount = tuple[Path, str]  # path on this machine, path inside the sandbox


@dataclass(frozen=True)
class InstalledProgram:
    """A program on this machine.

    Attributes:
        mounts: What the sandbox must contain, in this order.
        lock: The versions and hashes of everything that was installed; the same on every machine.
        placeholders: What stands for its files in a command line.
        environment: The variables that it needs.
    """

    mounts: tuple[Mount, ...]
    lock: str
    placeholders: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def short_hash(*texts: str) -> str:
    """A hash of some texts for the name of a folder."""
    return blake3("\0".join(texts).encode()).hexdigest(length=8)


def ensure_lock(key: str, resolve: Callable[[Path], str]) -> str:
    """Return the lock that was resolved for `key`, so that equal requests are equal installations.

    Args:
        key: What was requested.
        resolve: Returns the lock; it may work in the folder that it is given.
    """
    folder = cache_dir() / "locks" / short_hash(key)
    folder.parent.mkdir(exist_ok=True)
    build_once(folder, lambda building: _write_lock(building, resolve))
    return (folder / "lock").read_text()


def _write_lock(folder: Path, resolve: Callable[[Path], str]) -> None:
    (folder / "lock").write_text(resolve(folder))


def make_readable(folder: Path) -> None:
    """Let the user of the sandbox read everything below a folder; links are left alone."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))
