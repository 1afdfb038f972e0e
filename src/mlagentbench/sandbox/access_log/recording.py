"""Records accesses: a supervisor process for each command, and a file for each step."""

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
from mlagentbench.system.atomic_write import write_atomic

SUPERVISOR_TIMEOUT_S = 60  # for a supervisor to reply on a busy machine
PROGRAM_INSIDE = "/opt/access_log.py"
PROGRAM_MOUNT = (Path(access_log.__file__), PROGRAM_INSIDE)
_GET_ACTION_AVAIL, _RET_USER_NOTIF = 2, 0x7FC00000


def require_access_log_support(sandbox: str) -> None:
    """Raise a UsageError if accesses cannot be recorded with this sandbox or on this machine."""
    if sandbox != "bwrap":
        raise UsageError("--record-access needs the bubblewrap sandbox: use --sandbox bwrap.")
    action = ctypes.c_uint32(_RET_USER_NOTIF)
    is_known_machine = platform.machine() in ("x86_64", "aarch64")
    numbers = (syscalls.seccomp_syscall_number(), _GET_ACTION_AVAIL, 0) if is_known_machine else ()
    if not is_known_machine or ctypes.CDLL(None).syscall(*map(ctypes.c_long, numbers), ctypes.byref(action)):
        raise UsageError("--record-access needs seccomp user notification: Linux 5.6 on x86_64 or aarch64.")


class CommandRecorder:
    """Records the accesses of one command."""

    def __init__(self, uid: int | None) -> None:
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(SUPERVISOR_TIMEOUT_S)
        names = {number: name for name, number in syscalls.recorded_syscall_numbers().items()}
        source_folder = str(Path(mlagentbench.__file__).parents[1])
        with theirs:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-S", "-P", "-m", supervisor.__name__, str(uid or 0), json.dumps(names)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={"PYTHONPATH": source_folder, "PYTHONDONTWRITEBYTECODE": "1"},
                cwd="/",
                start_new_session=True,
            )
        self.pid = self._supervisor.pid

    def wrap_command(self, command: list[str]) -> list[str]:
        """Prefix a command with the program that installs the filter and sends out the listener."""
        number, seccomp_filter = syscalls.seccomp_syscall_number(), syscalls.build_notify_filter()
        return ["python", "-I", "-S", PROGRAM_INSIDE, str(number), seccomp_filter.hex(), *command]

    def hand_over_listener(self, child: "subprocess.Popen[bytes]") -> None:
        """Pass the listener from the sandbox to the supervisor.

        If the sandbox prints something instead, it has failed; the handshake then reports why.
        """
        assert child.stdin is not None
        assert child.stdout is not None
        streams = [child.stdin, child.stdout]
        if child.stdin.fileno() not in handshake.wait_readable(child, streams, SUPERVISOR_TIMEOUT_S):
            return
        with socket.socket(fileno=child.stdin.fileno()) as channel:
            try:
                _, fds, _, _ = socket.recv_fds(channel, 1, 1)
            finally:
                channel.detach()
        with suppress(OSError):  # the supervisor has exited, which the first request for counts reveals
            socket.send_fds(self._channel, [b"\n"], fds)
        for fd in fds:
            socket.close(fd)

    def discard_startup_accesses(self, child: "subprocess.Popen[bytes]") -> None:
        """Drop the accesses made before the command started: they are not the agent's."""
        try:
            self.take_counts()
        except SandboxFault:
            handshake.abort(child)
            raise

    def take_counts(self) -> tuple[bool, list[list[Any]]]:
        """Whether the command has exited, and the accesses since the counts were last taken."""
        try:
            self._channel.sendall(b"?")
            reply = json.loads(self._receive_exactly(int.from_bytes(self._receive_exactly(8))))
        except (OSError, EOFError) as error:
            reason = self.read_exit_reason() or error
            raise SandboxFault(f"The access log stopped recording: {reason}") from error
        return reply["exited"], reply["accesses"]

    def _receive_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._channel.recv(size - len(data))
            if not chunk:
                raise EOFError("its supervisor has exited")
            data += chunk
        return data

    def read_exit_reason(self) -> str:
        """The last line that the supervisor printed if it has exited, else ""."""
        try:
            self._supervisor.wait(1)
        except subprocess.TimeoutExpired:
            return ""
        assert self._supervisor.stderr is not None
        return self._supervisor.stderr.read().decode("utf-8", "replace").strip().rpartition("\n")[2]

    def close(self) -> None:
        """Stop recording. Recorded calls fail from now on, so the command must have exited."""
        self._channel.close()
        wait_or_kill(self._supervisor, SUPERVISOR_TIMEOUT_S)
        assert self._supervisor.stderr is not None
        self._supervisor.stderr.close()


class AccessLog:
    """The accesses of one run, per step."""

    def __init__(self, run_folder: Path) -> None:
        self._run_folder = run_folder
        self._recorders: list[CommandRecorder] = []

    @contextmanager
    def record_command(self, uid: int | None) -> Iterator[CommandRecorder]:
        """Record a command of this user, which is started inside the context.

        If it cannot be started because its supervisor has exited, the fault says so.
        """
        recorder = CommandRecorder(uid)
        self._recorders.append(recorder)
        try:
            yield recorder
        except BaseException as error:
            reason = recorder.read_exit_reason() if isinstance(error, SandboxFault) else ""
            self._close_recorder(recorder)
            if reason:
                raise SandboxFault(f"The access log cannot record: {reason}") from error
            raise

    def _close_recorder(self, recorder: CommandRecorder) -> None:
        self._recorders.remove(recorder)
        recorder.close()

    def write_step(self, step: int) -> None:
        """Write the accesses since the last step; a step without any has no file."""
        path, accesses = access_file(self._run_folder, step), self._take_accesses()
        if not accesses:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, "".join(f"{access.model_dump_json()}\n" for access in accesses))

    def _take_accesses(self) -> list[Access]:
        totals: dict[tuple[str, Any], list[int]] = {}
        for recorder in tuple(self._recorders):
            exited, rows = recorder.take_counts()
            for path, mode, count, refused in rows:
                total = totals.setdefault((path, mode), [0, 0])
                total[0] += count
                total[1] += refused
            if exited:
                self._close_recorder(recorder)
        return [Access(path=path, mode=mode, count=n, refused=r) for (path, mode), (n, r) in totals.items()]

    def discard_pending(self) -> None:
        """Drop the accesses since the last step, which belong to no step."""
        self._take_accesses()

    def close(self) -> None:
        """Stop recording. Every command must have exited."""
        for recorder in tuple(self._recorders):
            self._close_recorder(recorder)
