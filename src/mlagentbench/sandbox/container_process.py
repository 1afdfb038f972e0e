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
from mlagentbench.sandbox import container_driver, gate, seccomp
from mlagentbench.sandbox.base import Box, Process
from mlagentbench.sandbox.cgroups import Group
from mlagentbench.sandbox.output import Output
from mlagentbench.sandbox.processes import PATIENCE, Tree, wait_or_kill
from mlagentbench.sandbox.watch import Watch

SECONDS = 60  # for an engine to start a container on a busy machine
GROUP = "agent:x:{0}:\nroot:x:0:\n"
PASSWD = "agent:x:{0}:{0}:agent:/home/agent:/bin/sh\nroot:x:0:0:root:/nowhere:/bin/false\n"
HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost\n"


class ContainerTree(Tree):
    """A container's processes; the first of them is ours, and is neither frozen nor counted."""

    def __init__(self, engine: int, group: Group, root: int) -> None:
        super().__init__(root, group, root=root)
        self._engine = os.pidfd_open(engine)

    def members(self) -> list[int]:
        """Every process that runs the agent's code."""
        return [pid for pid in super().members() if pid != self.root]

    def end(self) -> None:
        """Kill the first process, and with it all; the engine then clears away what it made."""
        super().end()
        if not _ready([self._engine], PATIENCE):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._engine, signal.SIGKILL)

    def close(self) -> None:
        """Forget the processes, which have ended."""
        super().close()
        os.close(self._engine)


class ContainerProcess(Process):
    """A command in a container."""

    channel: socket.socket

    def finish(self, output: Output) -> Execution:
        """As any other; the time that the engine takes to clear away is not the command's."""
        seconds = time.monotonic() - self.started
        return super().finish(output).but(seconds=round(seconds, 3))

    def close(self) -> None:
        """End it if it still runs, and give back what it held."""
        try:
            super().close()
        finally:
            self.channel.close()


@contextmanager
def doorway(box: Box) -> Iterator[Path]:
    """The files by which a container begins; once it has, they are not needed any more."""
    outer = Path(tempfile.mkdtemp(prefix="mlagentbench-"))  # the name of a socket must be short
    door = outer / "box"
    try:
        door.mkdir()
        user = box.owner or os.getuid()
        files = {"passwd": PASSWD.format(user), "group": GROUP.format(user), "hosts": HOSTS, "resolv.conf": ""}
        files["driver.py"] = Path(container_driver.__file__).read_text()
        for name, text in files.items():
            (door / name).write_text(text)
            (door / name).chmod(0o644)
        door.chmod(0o755)
        yield door
    finally:
        shutil.rmtree(outer)


class Waiting(NamedTuple):
    """An engine, the way to the first process of its container, which waits for orders, and that one's number here."""

    engine: "subprocess.Popen[bytes]"
    channel: socket.socket
    first: int


def enter(command: Sequence[str], door: Path, env: Mapping[str, str]) -> Waiting:
    """A container that has begun, and does nothing yet."""
    with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryFile() as words:
        listener.bind(str(door / "enter"))
        (door / "enter").chmod(0o666)
        listener.listen(1)
        engine = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, env=env, start_new_session=True
        )
        try:
            ended = os.pidfd_open(engine.pid)
            try:
                ready = _ready([listener.fileno(), ended], SECONDS)
            finally:
                os.close(ended)
            if listener.fileno() not in ready:
                words.seek(0)
                said = " ".join(words.read(4000).decode("utf-8", "replace").split()) or "it said nothing"
                raise SandboxFault(f"{gate.FAILED}: {command[0]}: {said}")
            channel = listener.accept()[0]
        except BaseException:
            engine.kill()
            engine.wait()
            raise
    peer = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Waiting(engine, channel, peer[0])


def _ready(fds: Sequence[int], seconds: float) -> list[int]:
    """Those of which there is news, as soon as there are any."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(seconds * 1000)]


def attend(waiting: Waiting, box: Box, group: Group, argv: Sequence[str], stdin: int) -> Process:
    """Give the first process its orders, and watch over it and all that it begins."""
    engine, channel, first = waiting
    try:
        if not first:
            raise SandboxFault(f"{gate.FAILED}: its processes cannot be seen from here")
        group.adopt(first)
        _order(waiting, box, group, argv)
        gate.await_ready(engine)
        box.require_calm()
        tree = ContainerTree(engine.pid, group, first)
        process = ContainerProcess(engine, tree, Watch(box.workspace, box.limits, group, tree), box.stopping)
    except BaseException:
        _abandon(waiting)
        raise
    process.channel = channel
    gate.let_through(engine, stdin)
    return process


def _order(waiting: Waiting, box: Box, group: Group, argv: Sequence[str]) -> None:
    """What to run, within what, and the streams that the engine would have kept for itself."""
    order = {
        "argv": list(argv),
        "environment": {**box.runtime.environment, **box.environment},
        "bounds": [*gate.bounds(box.limits, group).items()],
        "filter": seccomp.program().hex(),
    }
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    waiting.engine.stdin, waiting.engine.stdout = FileIO(ours.detach(), "r+"), FileIO(reader)
    with theirs, FileIO(writer, "w"):
        socket.send_fds(waiting.channel, [json.dumps(order).encode() + b"\n"], [theirs.fileno(), writer])


def _abandon(waiting: Waiting) -> None:
    """The first process hears that nobody is there, and ends; the engine clears away."""
    waiting.channel.close()
    wait_or_kill(waiting.engine, PATIENCE)
    for stream in (waiting.engine.stdin, waiting.engine.stdout):
        if stream:
            stream.close()
