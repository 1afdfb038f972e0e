"""A command in a container: how its first process is met, told what to do, and ended."""

import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from mlagentbench.errors import SandboxFault
from mlagentbench.records import Execution
from mlagentbench.sandbox import handshake, seccomp
from mlagentbench.sandbox.base import SandboxProcess, SandboxSpec
from mlagentbench.sandbox.cgroups import Cgroup
from mlagentbench.sandbox.limit_monitor import LimitMonitor
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.processes import KILL_TIMEOUT_S, ProcessTree, wait_or_kill
from mlagentbench.sandbox.programs import container_init

CONTAINER_START_TIMEOUT_S = 60  # for an engine to start a container on a busy machine
ETC_GROUP = "agent:x:{0}:\nroot:x:0:\n"
ETC_PASSWD = "agent:x:{0}:{0}:agent:/home/agent:/bin/sh\nroot:x:0:0:root:/nowhere:/bin/false\n"
ETC_HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost\n"


class ContainerProcessTree(ProcessTree):
    """A container's processes; the first of them is ours, and is neither frozen nor counted."""

    def __init__(self, engine: int, group: Cgroup, root: int) -> None:
        super().__init__(root, group, root_pid=root)
        self._engine_pidfd = os.pidfd_open(engine)

    def pids(self) -> list[int]:
        """Every process that runs the agent's code."""
        return [pid for pid in super().pids() if pid != self.root_pid]

    def kill(self) -> None:
        """Kill the first process, and with it all; the engine then clears away what it made."""
        super().kill()
        if not _poll_readable([self._engine_pidfd], KILL_TIMEOUT_S):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._engine_pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Forget the processes, which have ended."""
        super().close()
        os.close(self._engine_pidfd)


class ContainerProcess(SandboxProcess):
    """A command in a container."""

    channel: socket.socket

    def finish(self, output: CommandOutput) -> Execution:
        """As any other; the time that the engine takes to clear away is not the command's."""
        seconds = time.monotonic() - self.started_at
        return super().finish(output).replace(seconds=round(seconds, 3))

    def close(self) -> None:
        """End it if it still runs, and give back what it held."""
        try:
            super().close()
        finally:
            self.channel.close()


@contextmanager
def create_control_folder(box: SandboxSpec) -> Iterator[Path]:
    """The files by which a container begins; once it has, they are not needed any more."""
    outer = Path(tempfile.mkdtemp(prefix="mlagentbench-"))  # the name of a socket must be short
    door = outer / "box"
    try:
        door.mkdir()
        user = box.uid or os.getuid()
        files = {
            "passwd": ETC_PASSWD.format(user),
            "group": ETC_GROUP.format(user),
            "hosts": ETC_HOSTS,
            "resolv.conf": "",
        }
        files["driver.py"] = Path(container_init.__file__).read_text()
        for name, text in files.items():
            (door / name).write_text(text)
            (door / name).chmod(0o644)
        door.chmod(0o755)
        yield door
    finally:
        shutil.rmtree(outer)


class StartedContainer(NamedTuple):
    """An engine, the way to the first process of its container, which waits for orders, and that one's number here."""

    engine: "subprocess.Popen[bytes]"
    channel: socket.socket
    init_pid: int


def start_container(command: Sequence[str], control_folder: Path, env: Mapping[str, str]) -> StartedContainer:
    """A container that has begun, and does nothing yet."""
    with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryFile() as words:
        listener.bind(str(control_folder / "enter"))
        (control_folder / "enter").chmod(0o666)
        listener.listen(1)
        engine = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, env=env, start_new_session=True
        )
        try:
            ended = os.pidfd_open(engine.pid)
            try:
                ready = _poll_readable([listener.fileno(), ended], CONTAINER_START_TIMEOUT_S)
            finally:
                os.close(ended)
            if listener.fileno() not in ready:
                words.seek(0)
                said = " ".join(words.read(4000).decode("utf-8", "replace").split()) or "it said nothing"
                raise SandboxFault(f"{handshake.START_FAILED}: {command[0]}: {said}")
            channel = listener.accept()[0]
        except BaseException:
            engine.kill()
            engine.wait()
            raise
    peer = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return StartedContainer(engine, channel, peer[0])


def _poll_readable(fds: Sequence[int], seconds: float) -> list[int]:
    """Those of which there is news, as soon as there are any."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(seconds * 1000)]


def start_container_command(
    container: StartedContainer, spec: SandboxSpec, group: Cgroup, argv: Sequence[str], stdin: int
) -> SandboxProcess:
    """Give the first process its orders, and watch over it and all that it begins."""
    engine, channel, first = container
    try:
        if not first:
            raise SandboxFault(f"{handshake.START_FAILED}: its processes cannot be seen from here")
        group.add_process(first)
        _send_request(container, spec, group, argv)
        handshake.wait_until_ready(engine)
        spec.require_idle_workspace()
        tree = ContainerProcessTree(engine.pid, group, first)
        process = ContainerProcess(
            engine, tree, LimitMonitor(spec.workspace, spec.limits, group, tree), spec.stop_token
        )
    except BaseException:
        _abort_container(container)
        raise
    process.channel = channel
    handshake.release(engine, stdin)
    return process


def _send_request(waiting: StartedContainer, box: SandboxSpec, group: Cgroup, argv: Sequence[str]) -> None:
    """What to run, within what, and the streams that the engine would have kept for itself."""
    order = {
        "argv": list(argv),
        "environment": {**box.runtime.environment, **box.environment},
        "bounds": [*handshake.resource_limits(box.limits, group).items()],
        "filter": seccomp.build_filter().hex(),
    }
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    waiting.engine.stdin, waiting.engine.stdout = FileIO(ours.detach(), "r+"), FileIO(reader)
    with theirs, FileIO(writer, "w"):
        socket.send_fds(waiting.channel, [json.dumps(order).encode() + b"\n"], [theirs.fileno(), writer])


def _abort_container(waiting: StartedContainer) -> None:
    """The first process hears that nobody is there, and ends; the engine clears away."""
    waiting.channel.close()
    wait_or_kill(waiting.engine, KILL_TIMEOUT_S)
    for stream in (waiting.engine.stdin, waiting.engine.stdout):
        if stream:
            stream.close()
