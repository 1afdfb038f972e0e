"""A command in a container: start the container, send the command to its first process, and kill it."""

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
INIT_FILE = "init.py"
SOCKET_NAME = Path(container_init.SOCKET_PATH).name


class ContainerProcessTree(ProcessTree):
    """The processes of a container, except the first one: that is ours, and is neither paused nor counted."""

    def __init__(self, engine_pid: int, cgroup: Cgroup, root_pid: int) -> None:
        super().__init__(root_pid, cgroup, root_pid=root_pid)
        self._engine_pidfd = os.pidfd_open(engine_pid)

    def pids(self) -> list[int]:
        """Every process that runs the agent's code."""
        return [pid for pid in super().pids() if pid != self.root_pid]

    def kill(self) -> None:
        """Kill the first process, and so all others, and wait until the engine has removed the container."""
        super().kill()
        if not _poll_readable([self._engine_pidfd], KILL_TIMEOUT_S):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._engine_pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Close the descriptors of processes that have exited."""
        super().close()
        os.close(self._engine_pidfd)


class ContainerProcess(SandboxProcess):
    """A command in a container."""

    channel: socket.socket

    def finish(self, output: CommandOutput) -> Execution:
        """Like any other command, but without counting the time that the engine takes to clean up."""
        seconds = time.monotonic() - self.started_at
        return super().finish(output).replace(seconds=round(seconds, 3))

    def close(self) -> None:
        """Kill the command if it is still running, and release its resources."""
        try:
            super().close()
        finally:
            self.channel.close()


@contextmanager
def create_control_folder(spec: SandboxSpec) -> Iterator[Path]:
    """A folder with the files that a container needs to start, and no longer afterwards."""
    parent = Path(tempfile.mkdtemp(prefix="mlagentbench-"))  # short, as the path of a socket must be
    control_folder = parent / "sandbox"
    try:
        control_folder.mkdir()
        uid = spec.uid or os.getuid()
        files = {
            "passwd": ETC_PASSWD.format(uid),
            "group": ETC_GROUP.format(uid),
            "hosts": ETC_HOSTS,
            "resolv.conf": "",
            INIT_FILE: Path(container_init.__file__).read_text(),
        }
        for name, text in files.items():
            (control_folder / name).write_text(text)
            (control_folder / name).chmod(0o644)
        control_folder.chmod(0o755)
        yield control_folder
    finally:
        shutil.rmtree(parent)


class StartedContainer(NamedTuple):
    """A container whose first process waits for a request on `channel`; `init_pid` is its pid on the host."""

    engine: "subprocess.Popen[bytes]"
    channel: socket.socket
    init_pid: int


def start_container(command: Sequence[str], control_folder: Path, env: Mapping[str, str]) -> StartedContainer:
    """Start a container, which does nothing yet."""
    with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryFile() as engine_output:
        listener.bind(str(control_folder / SOCKET_NAME))
        (control_folder / SOCKET_NAME).chmod(0o666)
        listener.listen(1)
        engine = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=engine_output,
            stderr=engine_output,
            env=env,
            start_new_session=True,
        )
        try:
            engine_pidfd = os.pidfd_open(engine.pid)
            try:
                ready = _poll_readable([listener.fileno(), engine_pidfd], CONTAINER_START_TIMEOUT_S)
            finally:
                os.close(engine_pidfd)
            if listener.fileno() not in ready:
                engine_output.seek(0)
                reason = " ".join(engine_output.read(4000).decode("utf-8", "replace").split()) or "no output"
                raise SandboxFault(f"{handshake.START_FAILED}: {command[0]}: {reason}")
            channel = listener.accept()[0]
        except BaseException:
            engine.kill()
            engine.wait()
            raise
    init_pid, _, _ = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return StartedContainer(engine, channel, init_pid)


def _poll_readable(fds: Sequence[int], timeout_s: float) -> list[int]:
    """Wait until at least one descriptor is readable, and return those that are."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(timeout_s * 1000)]


def start_container_command(
    container: StartedContainer, spec: SandboxSpec, cgroup: Cgroup, argv: Sequence[str], stdin: int
) -> SandboxProcess:
    """Send the command to the first process, monitor it and everything that it starts, and let it run."""
    engine, channel, init_pid = container
    try:
        if not init_pid:
            raise SandboxFault(f"{handshake.START_FAILED}: its processes are not visible from the harness")
        cgroup.add_process(init_pid)
        _send_request(container, spec, cgroup, argv)
        handshake.wait_until_ready(engine)
        spec.require_idle_workspace()
        tree = ContainerProcessTree(engine.pid, cgroup, init_pid)
        monitor = LimitMonitor(spec.writable_folders, spec.limits, cgroup, tree)
        process = ContainerProcess(engine, tree, monitor, spec.stop_token)
    except BaseException:
        _abort_container(container)
        raise
    process.channel = channel
    handshake.release(engine, stdin)
    return process


def _send_request(
    container: StartedContainer, spec: SandboxSpec, cgroup: Cgroup, argv: Sequence[str]
) -> None:
    """Send command, limits and filter, with the streams that the engine would not pass on."""
    request = {
        "argv": list(argv),
        "environment": {**spec.runtime.environment, **spec.environment},
        "rlimits": [*handshake.resource_limits(spec.limits, cgroup).items()],
        "filter": seccomp.build_filter(has_memory_cgroup="memory" in cgroup.folders).hex(),
    }
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    container.engine.stdin, container.engine.stdout = FileIO(ours.detach(), "r+"), FileIO(reader)
    with theirs, FileIO(writer, "w"):
        message = json.dumps(request).encode() + b"\n"
        socket.send_fds(container.channel, [message], [theirs.fileno(), writer])


def _abort_container(container: StartedContainer) -> None:
    """Close the channel, which makes the first process exit, and wait for the engine to clean up."""
    container.channel.close()
    wait_or_kill(container.engine, KILL_TIMEOUT_S)
    for stream in (container.engine.stdin, container.engine.stdout):
        if stream:
            stream.close()
