"""The handshake before a command starts: the sandbox is set up, and nothing of the command has run yet.

The last program before the command writes READY_BYTE to its output and waits for a line. So a sandbox that
cannot start is never mistaken for a command that failed. And a harness that is killed meanwhile never sends
the line, so no command starts that would not be killed.
"""

import os
import resource
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import FileIO
from typing import IO

from mlagentbench.errors import SandboxFault
from mlagentbench.records import BYTES_PER_GB, Limits
from mlagentbench.sandbox.cgroups import Cgroup
from mlagentbench.sandbox.launcher import shared_launcher

READY_BYTE = b"\x06"
START_TIMEOUT_S = 60  # to set up a sandbox on a busy machine
START_FAILED = "The sandbox cannot be started on this machine"

# Waits until the rlimits are set, becomes the first candidate of the OOM killer, and joins the cgroups named
# before "--".
_JOIN_CGROUPS_SCRIPT = """read -r _ || exit
{ echo 500 >/proc/self/oom_score_adj; } 2>/dev/null
while [ "$1" != -- ]; do echo 0 >"$1" || exit; shift; done
shift; exec "$@" """
_WAIT_SCRIPT = """command -v "$2" >/dev/null || { echo "no such program: $2"; exit 1; }
printf '\\006'; read -r _ || exit 1
[ "$1" = keep ] || exec </dev/null
shift; exec "$@" """


def wrap_command(argv: Sequence[str], stdin: int) -> list[str]:
    """Prefix a command with the handshake; unless stdin is PIPE, the command reads from /dev/null."""
    return ["/bin/sh", "-c", _WAIT_SCRIPT, "sh", "keep" if stdin == subprocess.PIPE else "close", *argv]


def start_child(
    command: Sequence[str],
    limits: Limits,
    cgroup: Cgroup,
    env: dict[str, str],
    cwd: str,
    pass_fds: Sequence[int] = (),
    before_ready: Callable[["subprocess.Popen[bytes]"], None] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a wrapped command within its limits, and wait until it is ready.

    The stdin of the child is a socket, which can also be read from. `before_ready` is called with the child
    before waiting, to exchange messages with programs that run before the command.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            child = shared_launcher().start_process(
                ["/bin/sh", "-c", _JOIN_CGROUPS_SCRIPT, "sh", *cgroup.join_files, "--", *command],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=pass_fds,
                env=env,
                cwd=cwd,
                bufsize=0,
                start_new_session=True,  # Ctrl-C goes to the harness only, which then kills what it started
            )
        except OSError as error:
            raise SandboxFault(f"{START_FAILED}: {error}") from error
        child.stdin = FileIO(ours.detach(), "r+")
    try:
        _apply_resource_limits(child.pid, limits, cgroup)
        child.stdin.write(b"\n")
        if before_ready:
            before_ready(child)
        wait_until_ready(child)
    except BaseException:
        abort(child)
        raise
    return child


def abort(child: "subprocess.Popen[bytes]") -> None:
    """Kill a child that has not been released, with everything that it started during setup."""
    with suppress(ProcessLookupError):
        # It has not been reaped, so its pid cannot belong to another process.
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for stream in (child.stdin, child.stdout):
        assert stream is not None
        stream.close()


def wait_until_ready(child: "subprocess.Popen[bytes]") -> None:
    """Wait for READY_BYTE; if anything else comes, raise a fault with that text as the reason."""
    assert child.stdout is not None
    output = b""
    deadline = time.monotonic() + START_TIMEOUT_S
    while len(output) < 2000 and wait_readable(child, [child.stdout], deadline - time.monotonic()):
        byte = os.read(child.stdout.fileno(), 1)
        if byte == READY_BYTE and not output:
            return
        if not byte:
            break
        output += byte
    reason = " ".join(output.decode("utf-8", "replace").split()) or "no output"
    raise SandboxFault(f"{START_FAILED}: {reason}")


def wait_readable(
    child: "subprocess.Popen[bytes]", streams: Sequence[IO[bytes]], timeout_s: float
) -> list[int]:
    """Return the descriptors of the streams that have data or are at their end.

    Returns none if the child dies first: its own children may still hold the streams open.
    """
    pidfd = os.pidfd_open(child.pid)
    try:
        poll = select.poll()
        for fd in (pidfd, *(stream.fileno() for stream in streams)):
            poll.register(fd, select.POLLIN)
        return [fd for fd, _ in poll.poll(max(timeout_s, 0) * 1000) if fd != pidfd]
    finally:
        os.close(pidfd)


def release(child: "subprocess.Popen[bytes]", stdin: int) -> None:
    """Let the command run; unless its stdin is a PIPE, close it."""
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # already killed; the limit monitor reports why
        child.stdin.write(b"\n")
    if stdin != subprocess.PIPE:
        child.stdin.close()


def resource_limits(limits: Limits, cgroup: Cgroup) -> dict[int, int]:
    """The rlimits of each process."""
    rlimits = {
        resource.RLIMIT_CORE: 1,  # with 0, a crash would still start the host's crash handler
        resource.RLIMIT_FSIZE: int(limits.disk_gb * BYTES_PER_GB),
        resource.RLIMIT_NOFILE: 4096,
        resource.RLIMIT_MEMLOCK: 64 * 2**20,
        resource.RLIMIT_MSGQUEUE: 819_200,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
    }
    if "memory" not in cgroup.folders:  # so that no single process is faster than the limit monitor
        rlimits[resource.RLIMIT_DATA] = int(2 * limits.memory_gb * BYTES_PER_GB)
    return rlimits


def _apply_resource_limits(pid: int, limits: Limits, cgroup: Cgroup) -> None:
    """Set the rlimits from outside, while the process still has our uid; this saves one exec."""
    for resource_id, maximum in resource_limits(limits, cgroup).items():
        hard = resource.prlimit(pid, resource_id)[1]
        limit = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        resource.prlimit(pid, resource_id, (limit, limit))
