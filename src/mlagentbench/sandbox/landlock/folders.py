"""The folders of one command: its own /tmp, home and shared memory, and its Python."""

import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from mlagentbench.runtimes.base import PYTHON_NAME
from mlagentbench.sandbox.launcher import shared_launcher
from mlagentbench.system.cache import temporary_dir

SHARED_MEMORY_PARENT = Path("/dev/shm")


class PrivateFolders:
    """Created for one command, and removed after it."""

    def __init__(self, uid: int | None) -> None:
        self._stack = ExitStack()
        self.disk = self._stack.enter_context(temporary_dir()).resolve()
        memory_parent = SHARED_MEMORY_PARENT if os.access(SHARED_MEMORY_PARENT, os.W_OK) else self.disk
        self.memory = Path(tempfile.mkdtemp(prefix=f"mlagentbench-{os.getpid()}-", dir=memory_parent))
        for name in ("tmp", "home", "python/bin", f"python/lib/{PYTHON_NAME}"):
            (self.disk / name).mkdir(parents=True)
        if uid:
            for folder in (self.disk, self.disk / "tmp", self.disk / "home", self.memory):
                os.chown(folder, uid, uid)

    def create_python(self, prefix: str, packages: str) -> None:
        """Create a virtual environment of the packages of a runtime."""
        for name in ("python", "python3", PYTHON_NAME):
            (self.disk / "python" / "bin" / name).symlink_to(f"{prefix}/bin/{PYTHON_NAME}")
        (self.disk / "python" / "lib" / PYTHON_NAME / "site-packages").symlink_to(packages)
        (self.disk / "python" / "pyvenv.cfg").write_text(
            f"home = {prefix}/bin\ninclude-system-site-packages = false\n"
        )

    def remove(self) -> None:
        """Remove what the supervisor has not removed."""
        shared_launcher().unstage(self.disk)
        shutil.rmtree(self.memory, ignore_errors=True)
        self._stack.close()


class ReadOnlyFiles:
    """Files of a workspace that are made read-only while commands run: the supervisor keeps them so."""

    def __init__(self, workspace: Path, paths: Sequence[str]) -> None:
        self.paths = [workspace / path for path in paths]
        self._modes: dict[Path, int] = {}

    def protect(self) -> None:
        """Take away the permissions to write."""
        for path in self.paths:
            for item in (path, *(path.rglob("*") if path.is_dir() and not path.is_symlink() else ())):
                status = item.lstat()
                if not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o222:
                    self._modes[item] = stat.S_IMODE(status.st_mode)
                    item.chmod(status.st_mode & 0o7555)

    def restore(self) -> None:
        """Give the permissions back."""
        for item, mode in self._modes.items():
            with suppress(OSError):
                if not item.is_symlink():
                    item.chmod(mode)
        self._modes.clear()
