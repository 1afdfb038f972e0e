"""The one thread from which every sandbox is started.

bubblewrap's --die-with-parent watches the *thread* that started it, so that thread must live as long as the harness.
As root it also has a mount namespace of its own, private to the thread: folders that the dropped user could not reach
(a Python below a 0700 home, the cache) are bound there under short public names, and nobody else sees those mounts.
They vanish with the harness, however it dies.
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


def _raise_on_failure(result: int, doing: str) -> None:
    if result != 0:
        raise SandboxFault(f"{doing}: {os.strerror(ctypes.get_errno())}")


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    outcome = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode() if kind else None, flags, None
    )
    _raise_on_failure(outcome, f"cannot mount {source} on {target}")


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
            self._run_in_thread(self._enter_private_mounts)

    def _run_jobs(self) -> None:
        while True:
            job, answer = self._jobs.get()
            try:
                answer.set_result(job())
            except BaseException as error:  # noqa: BLE001 - handed to the thread that asked
                answer.set_exception(error)

    def _run_in_thread(self, job: Callable[[], ResultT]) -> ResultT:
        answer: Future[ResultT] = Future()
        self._jobs.put((job, answer))
        return answer.result()

    def _enter_private_mounts(self) -> None:
        _raise_on_failure(_libc.unshare(CLONE_NEWNS), "cannot make a private mount namespace")
        _mount("none", "/", None, MS_REC | MS_PRIVATE)
        try:
            STAGING_FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise SandboxFault(f"cannot make {STAGING_FOLDER}: {error}") from error
        _mount("mlagentbench", str(STAGING_FOLDER), "tmpfs", 0)
        STAGING_FOLDER.chmod(0o755)

    def stage(self, path: Path) -> str:
        """A name for `path` under which the dropped user can reach it."""
        if not self.has_private_mounts:
            return str(path)
        status = path.stat()
        key = (str(path), status.st_dev, status.st_ino)
        return self._staged.get(key) or self._run_in_thread(lambda: self._stage(key))

    def _stage(self, key: tuple[str, int, int]) -> str:
        if key not in self._staged:
            self._stage_count += 1
            place = STAGING_FOLDER / str(self._stage_count)
            if Path(key[0]).is_dir():
                place.mkdir()
            else:
                place.touch()
            _mount(key[0], str(place), None, MS_BIND | MS_REC)
            self._staged[key] = str(place)
        return self._staged[key]

    def unstage(self, path: Path) -> None:
        """Forget every name given to `path`."""
        if self.has_private_mounts:
            self._run_in_thread(lambda: self._unstage(str(path)))

    def _unstage(self, path: str) -> None:
        for key in [key for key in self._staged if key[0] == path]:
            place = self._staged.pop(key)
            _libc.umount2(place.encode(), MNT_DETACH)
            (os.rmdir if Path(place).is_dir() else os.unlink)(place)

    def start_process(self, command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        """A child of the long-lived thread."""
        return self._run_in_thread(lambda: subprocess.Popen(command, **options))


_launcher: Launcher | None = None
_lock = threading.Lock()


def shared_launcher() -> Launcher:
    """This process's launcher, made at first use."""
    global _launcher
    with _lock:
        if _launcher is None or _launcher.pid != os.getpid():  # a fork has no other thread
            _launcher = Launcher()
        return _launcher
