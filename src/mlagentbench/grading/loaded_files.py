"""The files that a grader has read while it was loaded, and whether one of them has changed since."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

Signature = tuple[int, ...]

# The interpreter, installed packages and this one: the harness, too, keeps what it has loaded of them.
# What the kernel shows as files looks new at every look.
UNWATCHED = (
    *map(Path, ("/proc", "/sys", "/dev")),
    Path(sys.prefix),
    Path(sys.base_prefix),
    Path(__file__).parents[1],
)


class LoadedFiles:
    """Watches the files in some folders, and other files that are not part of an installation.

    Args:
        folders: Where all files are watched that are read, even if the folders are part of an installation.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._signatures: dict[Path, Signature] = {}
        self._is_recording = False
        sys.addaudithook(self._on_event)

    @contextmanager
    def record(self) -> Iterator[None]:
        """Watch the files that are read, and the modules that are imported, in this block."""
        self._is_recording = True
        try:
            yield
        finally:
            self._is_recording = False
            for module in list(sys.modules.values()):
                if path := getattr(module, "__file__", None):  # what was read may be its compiled file
                    self._watch(path)
            # A temporary file of the grader is gone by now.
            self._signatures = {path: sign for path, sign in self._signatures.items() if path.exists()}

    @property
    def have_changed(self) -> bool:
        """Whether a file is not the one that was read."""
        return any(_sign(path) != signature for path, signature in self._signatures.items())

    def _on_event(self, event: str, args: tuple[object, ...]) -> None:
        if self._is_recording and event == "open":
            path, _, flags = args
            is_read = isinstance(flags, int) and flags & os.O_ACCMODE == os.O_RDONLY
            if is_read and isinstance(path, str | bytes):
                self._watch(os.fsdecode(path))

    def _watch(self, name: str) -> None:
        path = Path(name).absolute()
        is_unwatched = any(path.is_relative_to(folder) for folder in UNWATCHED)
        if not is_unwatched or any(path.is_relative_to(folder) for folder in self._folders):
            # Before it is read: what changes meanwhile counts as a change.
            self._signatures.setdefault(path, _sign(path))


def _sign(path: Path) -> Signature:
    """Changes with the file; empty if there is none."""
    try:
        stat = path.stat()
    except OSError:
        return ()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
