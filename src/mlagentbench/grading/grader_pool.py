"""Fork servers that have loaded a task's grader, kept from one run of this process to the next."""

import atexit
import json
import os
import select
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mlagentbench.grading.fork_server import DONE
from mlagentbench.grading.grader_command import grader_command
from mlagentbench.sandbox.launcher import shared_launcher
from mlagentbench.system.stop_token import POLL_INTERVAL_S, StopToken

MAX_IDLE_SERVERS = 4  # each has 15 MB of its own, and 60 MB if the grader loads pandas
MAX_WAIT_S = 10.0  # for one of the servers that are busy; then one more is started


class ServerKey(NamedTuple):
    """What a server has loaded: the task's folder, the answers, and its environment."""

    folder: Path
    private: Path
    environment: tuple[tuple[str, str], ...]


class GraderServer:
    """Client of one fork server, for submissions that are one file; used by one thread at a time."""

    def __init__(self, key: ServerKey) -> None:
        # The kernel kills it with the thread that starts it, and threads of runs end before this process.
        self._process = shared_launcher().start_process(
            grader_command("fork_server", key.folder, key.private),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(key.environment),
            cwd="/",
            bufsize=0,
            start_new_session=True,  # Ctrl-C must reach only the harness
        )

    def request(self, paths: Mapping[str, Path], timeout_s: float, stop_token: StopToken) -> bytes:
        """Grade a submission in a fork.

        Args:
            paths: The arguments of `grader_process.write_grade`.
            timeout_s: The time limit.
            stop_token: Interrupts grading when a stop is requested.

        Returns:
            DONE if the answer was written, FAILED if not, and nothing if the server has exited.

        Raises:
            subprocess.TimeoutExpired: The grader took too long.
        """
        stdin, stdout, deadline = self._process.stdin, self._process.stdout, time.monotonic() + timeout_s
        assert stdin and stdout
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        try:
            stdin.write(json.dumps({name: str(path) for name, path in paths.items()}).encode() + b"\n")
            while not poll.poll(POLL_INTERVAL_S * 1000):
                if time.monotonic() > deadline:
                    raise subprocess.TimeoutExpired(self._process.args, timeout_s)
                stop_token.raise_if_requested()
            return bytes(stdout.read(1))
        except BrokenPipeError:
            return b""

    def close(self) -> None:
        """Kill the server; its forks die with it."""
        with self._process as process:
            process.kill()


class ServerPool:
    """The servers of this process. As many grade at the same time as there are cores."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(len(os.sched_getaffinity(0)))
        self._idle: list[tuple[ServerKey, GraderServer]] = []  # the one that was used last comes last
        atexit.register(self.close)

    def grade(
        self, key: ServerKey, paths: Mapping[str, Path], timeout_s: float, stop_token: StopToken
    ) -> bool:
        """Grade a submission in a fork; the arguments are those of `GraderServer.request`.

        Returns:
            Whether the answer was written. If not, a process of its own shows what is wrong.
        """
        with self._reserve_slot(stop_token):
            server = self._take(key)
            if server and (reply := self._request(key, server, paths, timeout_s, stop_token)):
                return reply == DONE
            # A server that was idle may have exited, because it was idle for long or the task was changed.
            return self._request(key, GraderServer(key), paths, timeout_s, stop_token) == DONE

    def close(self) -> None:
        """Kill all idle servers."""
        if self.pid != os.getpid():  # a fork does not own them
            return
        with self._lock:
            idle, self._idle = self._idle, []
        for _, server in idle:
            server.close()

    @contextmanager
    def _reserve_slot(self, stop_token: StopToken) -> Iterator[None]:
        """Wait while all cores grade, but not for ever: a grader may hang until its time limit."""
        deadline, reserved = time.monotonic() + MAX_WAIT_S, False
        while not reserved and time.monotonic() < deadline:
            stop_token.raise_if_requested()
            reserved = self._slots.acquire(timeout=POLL_INTERVAL_S)
        try:
            yield
        finally:
            if reserved:
                self._slots.release()

    def _request(
        self,
        key: ServerKey,
        server: GraderServer,
        paths: Mapping[str, Path],
        timeout_s: float,
        stop_token: StopToken,
    ) -> bytes:
        """Send a request; the server is kept if it replies, and killed if not."""
        reply = b""
        try:
            reply = server.request(paths, timeout_s, stop_token)
        finally:
            if reply:
                self._keep(key, server)
            else:
                server.close()
        return reply

    def _take(self, key: ServerKey) -> GraderServer | None:
        with self._lock:
            for number in reversed(range(len(self._idle))):
                if self._idle[number][0] == key:
                    return self._idle.pop(number)[1]
        return None

    def _keep(self, key: ServerKey, server: GraderServer) -> None:
        with self._lock:
            self._idle.append((key, server))
            surplus = self._idle[:-MAX_IDLE_SERVERS]
            del self._idle[:-MAX_IDLE_SERVERS]
        for _, other in surplus:
            other.close()


_pool: ServerPool | None = None
_lock = threading.Lock()


def shared_pool() -> ServerPool:
    """The pool of this process, created at first use."""
    global _pool
    with _lock:
        if _pool is None or _pool.pid != os.getpid():  # a fork does not own the servers of its parent
            _pool = ServerPool()
        return _pool
