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
from mlagentbench.sandbox import handshake
from mlagentbench.sandbox.access_log import supervisor, syscalls
from mlagentbench.sandbox.access_log.records import Access, access_file
from mlagentbench.sandbox.processes import wait_or_kill
from mlagentbench.sandbox.programs import access_log

SUPERVISOR_TIMEOUT_S = 60  # seconds for a supervisor to answer on a busy machine
PROGRAM_INSIDE = "/opt/ledger.py"
PROGRAM_MOUNT = (Path(access_log.__file__), PROGRAM_INSIDE)
_GET_ACTION_AVAIL, _RET_USER_NOTIF = 2, 0x7FC00000


def require_access_log_support(isolation: str) -> None:
    """Whoever asks for a ledger where there can be none is told why."""
    if isolation != "bwrap":
        raise UsageError("--ledger needs the sandbox: leave out --sandbox none")
    action = ctypes.c_uint32(_RET_USER_NOTIF)
    known = platform.machine() in ("x86_64", "aarch64")
    numbers = (syscalls.seccomp_syscall_number(), _GET_ACTION_AVAIL, 0) if known else ()
    if not known or ctypes.CDLL(None).syscall(*map(ctypes.c_long, numbers), ctypes.byref(action)):
        raise UsageError(
            "--ledger needs a kernel that tells of system calls (seccomp user notification, Linux 5.6)"
        )


class CommandRecorder:
    """One command, listened to."""

    def __init__(self, owner: int | None) -> None:
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(SUPERVISOR_TIMEOUT_S)
        names = {number: name for name, number in syscalls.recorded_syscall_numbers().items()}
        with theirs:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-S", "-P", "-m", supervisor.__name__, str(owner or 0), json.dumps(names)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={
                    "PYTHONPATH": str(Path(mlagentbench.__file__).parents[1]),
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
                cwd="/",
                start_new_session=True,
            )
        self.pid = self._supervisor.pid

    def wrap_command(self, command: list[str]) -> list[str]:
        """The command, begun by a program that hands out the listener first."""
        return [
            "python",
            "-I",
            "-S",
            PROGRAM_INSIDE,
            str(syscalls.seccomp_syscall_number()),
            syscalls.build_notify_filter().hex(),
            *command,
        ]

    def hand_over_listener(self, child: "subprocess.Popen[bytes]") -> None:
        """Pass the listener on to the supervisor; a sandbox that says something instead has failed, and says why."""
        assert child.stdin is not None
        assert child.stdout is not None
        if child.stdin.fileno() not in handshake.wait_readable(
            child, [child.stdin, child.stdout], SUPERVISOR_TIMEOUT_S
        ):
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

    def discard_startup_accesses(self, child: "subprocess.Popen[bytes]") -> None:
        """What came before the gate is not the agent's."""
        try:
            self.take_counts()
        except SandboxFault:
            handshake.abort(child)
            raise

    def take_counts(self) -> tuple[bool, list[list[Any]]]:
        """Whether the command has ended, and what was tried since the last cut."""
        try:
            self._channel.sendall(b"?")
            told = json.loads(self._receive_exactly(int.from_bytes(self._receive_exactly(8))))
        except (OSError, EOFError) as error:
            raise SandboxFault(
                f"the access ledger stopped listening: {self.read_exit_reason() or error}"
            ) from error
        return told["ended"], told["tried"]

    def _receive_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._channel.recv(size - len(data))
            if not more:
                raise EOFError("its supervisor has ended")
            data += more
        return data

    def read_exit_reason(self) -> str:
        """Why the supervisor has ended; nothing if it goes on."""
        try:
            self._supervisor.wait(1)
        except subprocess.TimeoutExpired:
            return ""
        assert self._supervisor.stderr is not None
        return self._supervisor.stderr.read().decode("utf-8", "replace").strip().rpartition("\n")[2]

    def close(self) -> None:
        """Stop listening; calls that would be told then fail, so the command must have ended."""
        self._channel.close()
        wait_or_kill(self._supervisor, SUPERVISOR_TIMEOUT_S)
        assert self._supervisor.stderr is not None
        self._supervisor.stderr.close()


class AccessLog:
    """The accesses of one run, step by step."""

    def __init__(self, run: Path) -> None:
        self._run_folder = run
        self._recorders: list[CommandRecorder] = []

    @contextmanager
    def record_command(self, owner: int | None) -> Iterator[CommandRecorder]:
        """Listen to a command of this user that is begun meanwhile; if it cannot be, say whether that is why."""
        listening = CommandRecorder(owner)
        self._recorders.append(listening)
        try:
            yield listening
        except BaseException as error:
            why = listening.read_exit_reason() if isinstance(error, SandboxFault) else ""
            self._close_recorder(listening)
            if why:
                raise SandboxFault(f"the access ledger cannot listen: {why}") from error
            raise

    def _close_recorder(self, listening: CommandRecorder) -> None:
        self._recorders.remove(listening)
        listening.close()

    def write_step(self, step: int) -> None:
        """Write down what was tried since the last step; a step that ran nothing has no file."""
        path, tried = access_file(self._run_folder, step), self._take_accesses()
        if not tried:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(exist_ok=True)
        whole = path.with_suffix(".part")
        whole.write_text("".join(f"{access.model_dump_json()}\n" for access in tried), encoding="utf-8")
        whole.rename(path)

    def _take_accesses(self) -> list[Access]:
        counts: dict[tuple[str, Any], list[int]] = {}
        for listening in tuple(self._recorders):
            ended, rows = listening.take_counts()
            for name, mode, count, refused in rows:
                known = counts.setdefault((name, mode), [0, 0])
                known[0] += count
                known[1] += refused
            if ended:
                self._close_recorder(listening)
        return [Access(path=name, mode=mode, count=n, refused=r) for (name, mode), (n, r) in counts.items()]

    def discard_pending(self) -> None:
        """What was tried since the last step belongs to none."""
        self._take_accesses()

    def close(self) -> None:
        """Stop listening altogether; every command has ended."""
        for listening in tuple(self._recorders):
            self._close_recorder(listening)
