"""Runs inside the sandbox as its first process, which no other can end: does commands, reads and writes files."""

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

HEADER = struct.Struct(">IQ")  # bytes of the JSON that comes first, and of what follows it
PR_SET_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: whatever is orphaned below a command stays below it
CHUNK_BYTES = 1 << 16
OPEN_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # a pipe without another end is an error, and nothing to wait for

Response = tuple[dict[str, Any], bytes]

_libc = ctypes.CDLL(None)
_process_lock = threading.Lock()  # of births and deaths
_child_started = threading.Event()
_running: dict[int, "Command"] = {}  # by number of the request
_cancelled: set[int] = set()  # requests that were taken back before they began


def encode_message(head: dict[str, Any], body: bytes = b"") -> bytes:
    """A message, as both sides write it."""
    text = json.dumps(head).encode()
    return HEADER.pack(len(text), len(body)) + text + body


def read_message(stream: BinaryIO) -> Response | None:
    """The next message, or None when the other side has hung up."""
    sizes = stream.read(HEADER.size)
    if len(sizes) < HEADER.size:
        return None
    length, size = HEADER.unpack(sizes)
    return json.loads(stream.read(length)), stream.read(size)


class Tail:
    """The last bytes of what a command prints."""

    def __init__(self, fd: int, most: int) -> None:
        self.fd, self.max_bytes, self.buffer, self.is_open = fd, most, bytearray(), True

    def read_available(self) -> None:
        """Read what there is."""
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
        """What is kept."""
        return bytes(self.buffer[-self.max_bytes :])


class Command:
    """One command with everything that it starts."""

    def __init__(self, asked: dict[str, Any], given: bytes) -> None:
        with _process_lock:
            self.child = subprocess.Popen(
                asked["argv"],
                cwd=asked["cwd"] or None,
                env={**os.environ, **asked["env"]},
                stdin=subprocess.PIPE if asked["stdin"] else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                preexec_fn=lambda: _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
            )
            self.pidfd = os.pidfd_open(self.child.pid)
            self.status: int | None = None
            self.reaped = threading.Event()
            _running[asked["id"]] = self
            _child_started.set()
        assert self.child.stdout and self.child.stderr
        self.stdin_data, self.timed_out = memoryview(given), False
        self.tails = [
            Tail(stream.fileno(), asked["most"]) for stream in (self.child.stdout, self.child.stderr)
        ]
        for stream in filter(None, (self.child.stdin, self.child.stdout, self.child.stderr)):
            os.set_blocking(stream.fileno(), False)

    def finish(self, seconds: float | None) -> int:
        """Feed it, hear it, and end it with all its tree when its time is over; the exit code as a shell tells it."""
        deadline = None if seconds is None else time.monotonic() + seconds
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
                self.stdin_data = self.stdin_data[
                    os.write(self.child.stdin.fileno(), self.stdin_data[:CHUNK_BYTES]) :
                ]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it does not want to hear more
            pass
        poll.unregister(self.child.stdin)
        self.child.stdin.close()
        self.child.stdin = None

    def _collect_exit_code(self) -> int:
        for tail in self.tails:
            if tail.is_open:
                tail.read_available()
        code = os.waitstatus_to_exitcode(self.status or 0)
        self.child.returncode = code  # else Popen would wait for it again
        os.close(self.pidfd)
        if self.child.stdin:
            self.child.stdin.close()
        # What goes on in the background may still print, and must not be ended by that.
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
        """End it and all that it started; everything is stopped first, so that nothing new can begin."""
        known: set[int] = set()
        while found := process_tree(self.child.pid) - known:
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            known |= found
        for pid in known:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def process_tree(root: int) -> set[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                children.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return set(found)


def reap_children() -> None:
    """Take note of every death below; whoever is orphaned ends here."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            _child_started.wait()
            _child_started.clear()
            continue
        with _process_lock, suppress(ChildProcessError):
            assert found
            pid, status = os.waitpid(found.si_pid, os.WNOHANG)
            for command in list(_running.values()):
                if command.child.pid == pid and not command.reaped.is_set():
                    command.status = status
                    command.reaped.set()


def run_command(asked: dict[str, Any], given: bytes) -> Response:
    """Run a command."""
    try:
        command = Command(asked, given)
    except PermissionError:
        raise
    except OSError as error:
        said = f"{error.filename}: {error.strerror}\n".encode()
        return {"code": 127, "late": False, "sizes": [0, len(said)]}, said
    try:
        if asked["id"] in _cancelled:
            command.kill()
        code = command.finish(asked["seconds"])
    finally:
        del _running[asked["id"]]
    out, err = (tail.content for tail in command.tails)
    return {"code": code, "late": command.timed_out, "sizes": [len(out), len(err)]}, out + err


def read_file(asked: dict[str, Any], given: bytes) -> Response:
    """The content of a file, if it is not too much."""
    fd = os.open(asked["path"], os.O_RDONLY | OPEN_FLAGS)
    with os.fdopen(fd, "rb") as file:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise IsADirectoryError(21, os.strerror(21), asked["path"])
        content = file.read(asked["most"] + 1) or b""
    return ({"long": True}, b"") if len(content) > asked["most"] else ({"long": False}, content)


def write_file(asked: dict[str, Any], given: bytes) -> Response:
    """Put a file in place, and the folders above it."""
    if above := os.path.dirname(asked["path"]):
        os.makedirs(above, exist_ok=True)
    fd = os.open(asked["path"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | OPEN_FLAGS, 0o666)
    with os.fdopen(fd, "wb") as file:
        file.write(given)
    return {}, b""


HANDLERS = {"execute": run_command, "read": read_file, "write": write_file}


def main() -> None:
    """Serve requests, each in its own thread, until the other side hangs up."""
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    speaking = threading.Lock()

    def serve(asked: dict[str, Any], given: bytes) -> None:
        try:
            head, body = HANDLERS[asked["do"]](asked, given)
        except OSError as error:
            head, body = {"errno": error.errno, "path": error.filename or asked.get("path", "")}, b""
        with speaking:
            channel.sendall(encode_message({"id": asked["id"], **head}, body))

    threading.Thread(target=reap_children, daemon=True).start()
    stream = channel.makefile("rb")
    while message := read_message(stream):
        asked, given = message
        if asked["do"] == "end":
            _cancelled.add(asked["id"])
            if command := _running.get(asked["id"]):
                command.kill()
        else:
            threading.Thread(target=serve, args=(asked, given), daemon=True).start()


if __name__ == "__main__":
    main()
