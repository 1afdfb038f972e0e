"""The moment before a command begins: everything around it is set up, and nothing of it has run.

The last program before the command says READY on its output and waits for a line. So a sandbox that cannot start is
never taken for a command that failed; and a harness that is killed meanwhile never sends the line, so that nothing
begins which nobody would end.
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
START_TIMEOUT_S = 60  # seconds for a sandbox to be set up on a busy machine
START_FAILED = "the sandbox cannot be started on this machine"

# Waits to be bounded, offers itself first to a kernel short of memory, joins the control groups named before "--".
_JOIN_CGROUPS_SCRIPT = """read -r _ || exit
{ echo 500 >/proc/self/oom_score_adj; } 2>/dev/null
while [ "$1" != -- ]; do echo 0 >"$1" || exit; shift; done
shift; exec "$@" """
_WAIT_SCRIPT = """command -v "$2" >/dev/null || { echo "there is no $2"; exit 1; }
printf '\\006'; read -r _ || exit 1
[ "$1" = keep ] || exec </dev/null
shift; exec "$@" """


def wrap_command(argv: Sequence[str], stdin: int) -> list[str]:
    """The command behind the gate; without a stdin of its own it reads nothing."""
    return ["/bin/sh", "-c", _WAIT_SCRIPT, "sh", "keep" if stdin == subprocess.PIPE else "close", *argv]


def start_child(
    command: Sequence[str],
    limits: Limits,
    group: Cgroup,
    env: dict[str, str],
    cwd: str,
    pass_fds: Sequence[int] = (),
    before_ready: Callable[["subprocess.Popen[bytes]"], None] | None = None,
) -> "subprocess.Popen[bytes]":
    """Begin within limits, up to the gate; the stdin of the child is a socket, which can also be read from.

    Whoever must hear from it on its way to the gate can `greet` it.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            child = shared_launcher().start_process(
                ["/bin/sh", "-c", _JOIN_CGROUPS_SCRIPT, "sh", *group.join_files, "--", *command],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=pass_fds,
                env=env,
                cwd=cwd,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for the harness, which then ends what it started
            )
        except OSError as error:
            raise SandboxFault(f"{START_FAILED}: {error}") from error
        child.stdin = FileIO(ours.detach(), "r+")
    try:
        _apply_resource_limits(child.pid, limits, group)
        child.stdin.write(b"\n")
        if before_ready:
            before_ready(child)
        wait_until_ready(child)
    except BaseException:
        abort(child)
        raise
    return child


def abort(child: "subprocess.Popen[bytes]") -> None:
    """End what has come no further than the gate, with what it began on its way there."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # it is not waited for yet, so nobody else has its number
    child.wait()
    for stream in (child.stdin, child.stdout):
        assert stream is not None
        stream.close()


def wait_until_ready(child: "subprocess.Popen[bytes]") -> None:
    """Wait until it stands at the gate; if it does not come there, what it says instead is why."""
    assert child.stdout is not None
    said = b""
    deadline = time.monotonic() + START_TIMEOUT_S
    while len(said) < 2000 and wait_readable(child, [child.stdout], deadline - time.monotonic()):
        byte = os.read(child.stdout.fileno(), 1)
        if byte == READY_BYTE and not said:
            return
        if not byte:
            break
        said += byte
    words = " ".join(said.decode("utf-8", "replace").split()) or "it said nothing"
    raise SandboxFault(f"{START_FAILED}: {words}")


def wait_readable(
    child: "subprocess.Popen[bytes]", streams: Sequence[IO[bytes]], timeout_s: float
) -> list[int]:
    """Which of them say something or end; none if the child dies first, whose own children may hold them open."""
    died = os.pidfd_open(child.pid)
    try:
        poll = select.poll()
        for fd in (died, *(stream.fileno() for stream in streams)):
            poll.register(fd, select.POLLIN)
        return [fd for fd, _ in poll.poll(max(timeout_s, 0) * 1000) if fd != died]
    finally:
        os.close(died)


def release(child: "subprocess.Popen[bytes]", stdin: int) -> None:
    """Open the gate; unless its stdin is a PIPE, the command has none from here on."""
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # killed already: it is the limits' business to say why
        child.stdin.write(b"\n")
    if stdin != subprocess.PIPE:
        child.stdin.close()


def resource_limits(limits: Limits, group: Cgroup) -> dict[int, int]:
    """What one process may take from the machine."""
    found = {
        resource.RLIMIT_CORE: 1,  # not 0, at which a crash would still start the host's own crash handler
        resource.RLIMIT_FSIZE: int(limits.disk_gb * BYTES_PER_GB),
        resource.RLIMIT_NOFILE: 4096,
        resource.RLIMIT_MEMLOCK: 64 * 2**20,
        resource.RLIMIT_MSGQUEUE: 819_200,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
    }
    if "memory" not in group.folders:  # so that no single process outruns the watchdog
        found[resource.RLIMIT_DATA] = int(2 * limits.memory_gb * BYTES_PER_GB)
    return found


def _apply_resource_limits(pid: int, limits: Limits, group: Cgroup) -> None:
    """Set the bounds while it is still of our user, and so without an exec more."""
    for kind, most in resource_limits(limits, group).items():
        hard = resource.prlimit(pid, kind)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.prlimit(pid, kind, (limit, limit))
