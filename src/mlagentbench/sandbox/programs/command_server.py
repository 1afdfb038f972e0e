"""Runs as the first process of a sandbox, which no other can kill: runs commands, reads and writes files."""

import ctypes
import json
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import threading
import time
from contextlib import suppress
from typing import Any, BinaryIO

HEADER = struct.Struct(">IQ")  # length of the JSON head, and of the body after it
PR_SET_CHILD_SUBREAPER = 36  # orphaned descendants of a command stay its descendants
CHUNK_BYTES = 1 << 16
OPEN_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # opening a named pipe without a peer is an error instead of a wait

Response = tuple[dict[str, Any], bytes]

_libc = ctypes.CDLL(None)
_process_lock = threading.Lock()  # held while children are started and reaped
_child_started = threading.Event()
_running: dict[int, "RunningCommand"] = {}  # by request id
_cancelled: set[int] = set()  # requests that were cancelled before they started


def encode_message(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Encode a message; both sides use this."""
    text = json.dumps(head).encode()
    return HEADER.pack(len(text), len(body)) + text + body


def read_message(stream: BinaryIO) -> Response | None:
    """The next message, or None when the harness has closed the channel."""
    sizes = stream.read(HEADER.size)
    if len(sizes) < HEADER.size:
        return None
    head_bytes, body_bytes = HEADER.unpack(sizes)
    return json.loads(stream.read(head_bytes)), stream.read(body_bytes)


class Tail:
    """The last bytes that a command prints to a stream."""

    def __init__(self, fd: int, max_bytes: int) -> None:
        self.fd, self.max_bytes, self.buffer, self.is_open = fd, max_bytes, bytearray(), True

    def read_available(self) -> None:
        """Read what is available."""
        try:
            while data := os.read(self.fd, CHUNK_BYTES):
                self.buffer += data
                if len(self.buffer) > 2 * self.max_bytes:
                    del self.buffer[: -self.max_bytes]
            self.is_open = False
        except BlockingIOError:
            return

    @property
    def content(self) -> bytes:
        """The bytes that are kept."""
        return bytes(self.buffer[-self.max_bytes :])


class RunningCommand:
    """One command and everything that it starts."""

    def __init__(self, request: dict[str, Any], stdin_data: bytes) -> None:
        with _process_lock:
            self.child = subprocess.Popen(
                request["argv"],
                cwd=request["cwd"] or None,
                env={**os.environ, **request["env"]},
                stdin=subprocess.PIPE if request["stdin"] else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                preexec_fn=lambda: _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
            )
            self.pidfd = os.pidfd_open(self.child.pid)
            self.status: int | None = None
            self.reaped = threading.Event()
            _running[request["id"]] = self
            _child_started.set()
        assert self.child.stdout and self.child.stderr
        self.stdin_data, self.timed_out = memoryview(stdin_data), False
        self.tails = [
            Tail(stream.fileno(), request["max_bytes"]) for stream in (self.child.stdout, self.child.stderr)
        ]
        for stream in filter(None, (self.child.stdin, self.child.stdout, self.child.stderr)):
            os.set_blocking(stream.fileno(), False)

    def finish(self, timeout_s: float | None) -> int:
        """Write stdin, read output, kill all processes at the timeout; returns the exit code of a shell."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        poll = select.poll()
        for fd in (self.pidfd, *(tail.fd for tail in self.tails)):
            poll.register(fd, select.POLLIN)
        if self.child.stdin:
            poll.register(self.child.stdin, select.POLLOUT)
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            ready = {fd for fd, _ in poll.poll(None if left is None else left * 1000 + 1)}
            if self.child.stdin and self.child.stdin.fileno() in ready:
                self._write_stdin(poll)
            for tail in self.tails:
                if tail.fd in ready:
                    tail.read_available()
                    if not tail.is_open:
                        poll.unregister(tail.fd)
            if self.pidfd in ready:
                break
            if left == 0:
                self.timed_out = True
                self.kill()
                break
        self.reaped.wait()
        return self._collect_exit_code()

    def _write_stdin(self, poll: select.poll) -> None:
        assert self.child.stdin
        try:
            while self.stdin_data:
                written = os.write(self.child.stdin.fileno(), self.stdin_data[:CHUNK_BYTES])
                self.stdin_data = self.stdin_data[written:]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it has closed its stdin
            pass
        poll.unregister(self.child.stdin)
        self.child.stdin.close()
        self.child.stdin = None

    def _collect_exit_code(self) -> int:
        for tail in self.tails:
            if tail.is_open:
                tail.read_available()
        code = os.waitstatus_to_exitcode(self.status or 0)
        self.child.returncode = code  # so that Popen does not wait for it again
        os.close(self.pidfd)
        if self.child.stdin:
            self.child.stdin.close()
        # Background processes may still print, and must not be killed by SIGPIPE.
        threading.Thread(target=self._drain_output, daemon=True).start()
        return code if code >= 0 else 128 - code

    def _drain_output(self) -> None:
        for stream, tail in zip((self.child.stdout, self.child.stderr), self.tails, strict=True):
            assert stream
            os.set_blocking(tail.fd, True)
            while tail.is_open and os.read(tail.fd, CHUNK_BYTES):
                pass
            stream.close()

    def kill(self) -> None:
        """Kill the command and all its descendants; all are stopped first, so that no new one can start."""
        stopped: set[int] = set()
        while running := process_tree(self.child.pid) - stopped:
            for pid in running:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= running
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def process_tree(root: int) -> set[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                children.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
    pids = [root]
    for pid in pids:
        pids += children.get(pid, [])
    return set(pids)


def reap_children() -> None:
    """Reap all children, orphans included, and store the exit status of commands."""
    while True:
        try:
            child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            _child_started.wait()
            _child_started.clear()
            continue
        with _process_lock, suppress(ChildProcessError):
            assert child
            pid, status = os.waitpid(child.si_pid, os.WNOHANG)
            for command in list(_running.values()):
                if command.child.pid == pid and not command.reaped.is_set():
                    command.status = status
                    command.reaped.set()


def run_command(request: dict[str, Any], body: bytes) -> Response:
    """Run a command."""
    try:
        command = RunningCommand(request, body)
    except PermissionError:
        raise
    except OSError as error:
        message = f"{error.filename}: {error.strerror}\n".encode()
        return {"exit_code": 127, "timed_out": False, "sizes": [0, len(message)]}, message
    try:
        if request["id"] in _cancelled:
            command.kill()
        code = command.finish(request["timeout_s"])
    finally:
        del _running[request["id"]]
    out, err = (tail.content for tail in command.tails)
    return {"exit_code": code, "timed_out": command.timed_out, "sizes": [len(out), len(err)]}, out + err


def read_file(request: dict[str, Any], body: bytes) -> Response:
    """Read a file, if it is not too large."""
    fd = os.open(request["path"], os.O_RDONLY | OPEN_FLAGS)
    with os.fdopen(fd, "rb") as file:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise IsADirectoryError(21, os.strerror(21), request["path"])
        content = file.read(request["max_bytes"] + 1) or b""
    return (
        ({"too_large": True}, b"") if len(content) > request["max_bytes"] else ({"too_large": False}, content)
    )


def write_file(request: dict[str, Any], body: bytes) -> Response:
    """Write a file, and create its parent folders."""
    if parent := os.path.dirname(request["path"]):
        os.makedirs(parent, exist_ok=True)
    fd = os.open(request["path"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | OPEN_FLAGS, 0o666)
    with os.fdopen(fd, "wb") as file:
        file.write(body)
    return {}, b""


HANDLERS = {"execute": run_command, "read": read_file, "write": write_file}


def main() -> None:
    """Serve requests, each in its own thread, until the harness closes the channel."""
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    send_lock = threading.Lock()

    def serve(request: dict[str, Any], body: bytes) -> None:
        try:
            head, reply = HANDLERS[request["operation"]](request, body)
        except OSError as error:
            head, reply = {"errno": error.errno, "path": error.filename or request.get("path", "")}, b""
        with send_lock:
            channel.sendall(encode_message({"id": request["id"], **head}, reply))

    threading.Thread(target=reap_children, daemon=True).start()
    stream = channel.makefile("rb")
    while message := read_message(stream):
        request, body = message
        if request["operation"] == "cancel":
            _cancelled.add(request["id"])
            if command := _running.get(request["id"]):
                command.kill()
        else:
            threading.Thread(target=serve, args=(request, body), daemon=True).start()


if __name__ == "__main__":
    main()
