"""The one thread from which every sandbox is started.

bubblewrap's --die-with-parent watches the *thread* that started it, so that thread must live as long as the
harness. If the harness is root, the thread also has its own mount namespace. Folders that the unprivileged
user could not reach (a Python below a 0700 home, the cache) are bind-mounted there under short public names,
and no other process sees those mounts. They vanish with the harness, however it dies.
"""

import ctypes
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from mlagentbench.errors import SandboxFault

CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 4096, 16384, 1 << 18, 2
STAGING_FOLDER = Path("/run/mlagentbench")

ResultT = TypeVar("ResultT")
_libc = ctypes.CDLL(None, use_errno=True)


def _raise_on_failure(return_code: int, message: str) -> None:
    if return_code != 0:
        raise SandboxFault(f"{message}: {os.strerror(ctypes.get_errno())}")


def _mount(source: str, target: str, file_system: str | None, flags: int) -> None:
    file_system_name = file_system.encode() if file_system else None
    return_code = _libc.mount(os.fsencode(source), os.fsencode(target), file_system_name, flags, None)
    _raise_on_failure(return_code, f"Cannot mount {source} on {target}")


class Launcher:
    """Starts child processes, one at a time, from its own thread."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._staged: dict[tuple[str, int, int], str] = {}
        self._stage_count = 0
        self.has_private_mounts = os.geteuid() == 0
        self.pid = os.getpid()
        threading.Thread(target=self._run_jobs, name="sandbox-launcher", daemon=True).start()
        if self.has_private_mounts:
            self.has_private_mounts = self._run_in_thread(self._enter_private_mounts)

    def _run_jobs(self) -> None:
        while True:
            job, result = self._jobs.get()
            try:
                result.set_result(job())
            except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
                result.set_exception(error)

    def _run_in_thread(self, job: Callable[[], ResultT]) -> ResultT:
        result: Future[ResultT] = Future()
        self._jobs.put((job, result))
        return result.result()

    def _enter_private_mounts(self) -> bool:
        """Returns whether it is possible; to root in a container, it usually is not."""
        if _libc.unshare(CLONE_NEWNS) != 0:
            return False
        _mount("none", "/", None, MS_REC | MS_PRIVATE)
        try:
            STAGING_FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise SandboxFault(f"Cannot create {STAGING_FOLDER}: {error}") from error
        _mount("mlagentbench", str(STAGING_FOLDER), "tmpfs", 0)
        STAGING_FOLDER.chmod(0o755)
        return True

    def stage(self, path: Path) -> str:
        """Return a path under which the unprivileged user can reach `path`; mounts it if necessary."""
        if not self.has_private_mounts:
            return str(path)
        status = path.stat()
        key = (str(path), status.st_dev, status.st_ino)
        return self._staged.get(key) or self._run_in_thread(lambda: self._stage(key))

    def _stage(self, key: tuple[str, int, int]) -> str:
        if key not in self._staged:
            self._stage_count += 1
            mount_point = STAGING_FOLDER / str(self._stage_count)
            if Path(key[0]).is_dir():
                mount_point.mkdir()
            else:
                mount_point.touch()
            _mount(key[0], str(mount_point), None, MS_BIND | MS_REC)
            self._staged[key] = str(mount_point)
        return self._staged[key]

    def unstage(self, path: Path) -> None:
        """Remove every mount of `path`."""
        if self.has_private_mounts:
            self._run_in_thread(lambda: self._unstage(str(path)))

    def _unstage(self, path: str) -> None:
        for key in [key for key in self._staged if key[0] == path]:
            mount_point = self._staged.pop(key)
            _libc.umount2(mount_point.encode(), MNT_DETACH)
            (os.rmdir if Path(mount_point).is_dir() else os.unlink)(mount_point)

    def start_process(self, command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Start a child of the long-lived thread."""
        return self._run_in_thread(lambda: subprocess.Popen(command, **options))


_launcher: Launcher | None = None
_lock = threading.Lock()


def shared_launcher() -> Launcher:
    """The launcher of this process, created at first use."""
    global _launcher
    with _lock:
        if _launcher is None or _launcher.pid != os.getpid():  # threads do not survive a fork
            _launcher = Launcher()
        return _launcher
