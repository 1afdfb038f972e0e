"""The harness's side of the access ledger: a supervisor for each command, and a file for each step."""

import ctypes
import json
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import mlagentbench
from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.sandbox import gate
from mlagentbench.sandbox.access import calls, driver, supervisor
from mlagentbench.sandbox.access.record import Access, file_of
from mlagentbench.sandbox.processes import wait_or_kill

PATIENCE = 60  # seconds for a supervisor to answer on a busy machine
INSIDE = "/opt/ledger.py"
DRIVER = (Path(driver.__file__), INSIDE)
_ACTION_AVAILABLE, _TELL = 2, 0x7FC00000


def require(isolation: str) -> None:
    """Whoever asks for a ledger where there can be none is told why."""
    if isolation != "bwrap":
        raise UsageError("--ledger needs the sandbox: leave out --sandbox none")
    action = ctypes.c_uint32(_TELL)
    known = platform.machine() in ("x86_64", "aarch64")
    numbers = (calls.seccomp_number(), _ACTION_AVAILABLE, 0) if known else ()
    if not known or ctypes.CDLL(None).syscall(*map(ctypes.c_long, numbers), ctypes.byref(action)):
        raise UsageError("--ledger needs a kernel that tells of system calls (seccomp user notification, Linux 5.6)")


class Listening:
    """One command, listened to."""

    def __init__(self, owner: int | None) -> None:
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(PATIENCE)
        names = {number: name for name, number in calls.numbers().items()}
        with theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-S", "-P", "-m", supervisor.__name__, str(owner or 0), json.dumps(names)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={"PYTHONPATH": str(Path(mlagentbench.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"},
                cwd="/",
                start_new_session=True,
            )
        self.pid = self._child.pid

    def wrapped(self, command: list[str]) -> list[str]:
        """The command, begun by a program that hands out the listener first."""
        return ["python", "-I", "-S", INSIDE, str(calls.seccomp_number()), calls.program().hex(), *command]

    def take(self, child: "subprocess.Popen[bytes]") -> None:
        """Pass the listener on to the supervisor; a sandbox that says something instead has failed, and says why."""
        assert child.stdin is not None
        assert child.stdout is not None
        if child.stdin.fileno() not in gate.heard(child, [child.stdin, child.stdout], PATIENCE):
            return
        with socket.socket(fileno=child.stdin.fileno()) as channel:
            try:
                _, fds, _, _ = socket.recv_fds(channel, 1, 1)
            finally:
                channel.detach()
        with suppress(OSError):  # it has ended, which the first question brings to light
            socket.send_fds(self._channel, [b"\n"], fds)
        for fd in fds:
            socket.close(fd)

    def begin(self, child: "subprocess.Popen[bytes]") -> None:
        """What came before the gate is not the agent's."""
        try:
            self.cut()
        except SandboxFault:
            gate.abandon(child)
            raise

    def cut(self) -> tuple[bool, list[list[Any]]]:
        """Whether the command has ended, and what was tried since the last cut."""
        try:
            self._channel.sendall(b"?")
            told = json.loads(self._received(int.from_bytes(self._received(8))))
        except (OSError, EOFError) as error:
            raise SandboxFault(f"the access ledger stopped listening: {self.last_words() or error}") from error
        return told["ended"], told["tried"]

    def _received(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._channel.recv(size - len(data))
            if not more:
                raise EOFError("its supervisor has ended")
            data += more
        return data

    def last_words(self) -> str:
        """Why the supervisor has ended; nothing if it goes on."""
        try:
            self._child.wait(1)
        except subprocess.TimeoutExpired:
            return ""
        assert self._child.stderr is not None
        return self._child.stderr.read().decode("utf-8", "replace").strip().rpartition("\n")[2]

    def close(self) -> None:
        """Stop listening; calls that would be told then fail, so the command must have ended."""
        self._channel.close()
        wait_or_kill(self._child, PATIENCE)
        assert self._child.stderr is not None
        self._child.stderr.close()


class Book:
    """The accesses of one run, step by step."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._open: list[Listening] = []

    @contextmanager
    def listening(self, owner: int | None) -> Iterator[Listening]:
        """Listen to a command of this user that is begun meanwhile; if it cannot be, say whether that is why."""
        listening = Listening(owner)
        self._open.append(listening)
        try:
            yield listening
        except BaseException as error:
            why = listening.last_words() if isinstance(error, SandboxFault) else ""
            self._drop(listening)
            if why:
                raise SandboxFault(f"the access ledger cannot listen: {why}") from error
            raise

    def _drop(self, listening: Listening) -> None:
        self._open.remove(listening)
        listening.close()

    def keep(self, step: int) -> None:
        """Write down what was tried since the last step; a step that ran nothing has no file."""
        path, tried = file_of(self._run, step), self._tried()
        if not tried:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(exist_ok=True)
        whole = path.with_suffix(".part")
        whole.write_text("".join(f"{access.model_dump_json()}\n" for access in tried), encoding="utf-8")
        whole.rename(path)

    def _tried(self) -> list[Access]:
        counts: dict[tuple[str, Any], list[int]] = {}
        for listening in tuple(self._open):
            ended, rows = listening.cut()
            for name, mode, count, refused in rows:
                known = counts.setdefault((name, mode), [0, 0])
                known[0] += count
                known[1] += refused
            if ended:
                self._drop(listening)
        return [Access(path=name, mode=mode, count=n, refused=r) for (name, mode), (n, r) in counts.items()]

    def forget(self) -> None:
        """What was tried since the last step belongs to none."""
        self._tried()

    def close(self) -> None:
        """Stop listening altogether; every command has ended."""
        for listening in tuple(self._open):
            self._drop(listening)
