"""Containers of podman or docker, for people whose policy wants images; the promises are those of bubblewrap."""

import json
import os
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from io import FileIO
from pathlib import Path

from blake3 import blake3

from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.records import GB, Execution
from mlagentbench.runtimes.base import PYTHON
from mlagentbench.sandbox import container_driver, gate, seccomp
from mlagentbench.sandbox.base import Box, Process, Sandbox
from mlagentbench.sandbox.cgroups import Group
from mlagentbench.sandbox.container_profile import DOOR, profile, skeleton
from mlagentbench.sandbox.output import Output
from mlagentbench.sandbox.processes import PATIENCE, Tree
from mlagentbench.sandbox.watch import Watch, require_room

FILES = 4096  # that a process may hold open
NUMBERS = 32768  # of processes, on a machine where nobody asked for more
SECONDS = 60  # for an engine to start a container on a busy machine
GROUP = "agent:x:{0}:\nroot:x:0:\n"
PASSWD = "agent:x:{0}:{0}:agent:/home/agent:/bin/sh\nroot:x:0:0:root:/nowhere:/bin/false\n"
HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost\n"


class Containers(Sandbox):
    """One container for each command, in an image, in a root file system, or over the host's own programs."""

    def __init__(self, engine: str, image: str = "", gpu: str = "") -> None:
        super().__init__(gpu)
        self.engine, self.image = engine, image
        self.name = f"{engine}:{image}" if image else engine
        if not shutil.which(engine):
            raise UsageError(f"this machine has no {engine}; install it, or use --sandbox bwrap, which needs no engine")

    def start(self, argv: Sequence[str], box: Box, stdin: int = subprocess.DEVNULL) -> Process:
        """Begin a command in a fresh container."""
        if os.geteuid() == 0 and not box.owner:
            raise SandboxFault("root would be root inside, too: a box needs an unprivileged owner")
        require_room(box.workspace)
        group = Group(int(box.limits.memory_gb * GB), box.limits.processes)
        try:
            with _door(box) as door:
                child, channel, first = self._enter(box, door, group)
            try:
                return _attend(child, channel, first, box, group, gate.gated(argv, stdin), stdin)
            except BaseException:
                channel.close()  # the first process hears of it, and ends
                child.wait()
                raise
        except BaseException:
            group.close()
            raise

    def _enter(self, box: Box, door: Path, group: Group) -> tuple["subprocess.Popen[bytes]", socket.socket, int]:
        """A container whose first process waits for orders; it, the way to it, and its number on this machine."""
        options = [*profile(box, door, self.engine, self.gpu, not self.image), *self._limits(box, group)]
        python = f"{box.runtime.prefix_inside}/bin/{PYTHON}"
        libraries = box.runtime.environment.get("LD_LIBRARY_PATH")
        options += ["--env", f"LD_LIBRARY_PATH={libraries}"] if libraries else []
        order = [self.engine, "run", *options, *self._source, python, "-ISB", f"{DOOR}/driver.py"]
        with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryFile() as words:
            listener.bind(str(door / "enter"))
            (door / "enter").chmod(0o666)
            listener.listen(1)
            child = subprocess.Popen(
                order, stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=True
            )
            try:
                channel = _accepted(listener, child)
            except BaseException:
                child.kill()
                child.wait()
                raise
            if channel is None:
                words.seek(0)
                said = " ".join(words.read(4000).decode("utf-8", "replace").split()) or "it said nothing"
                raise SandboxFault(f"{gate.FAILED}: {self.engine}: {said}")
        return child, channel, struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]

    @cached_property
    def _source(self) -> list[str]:
        """What the container is made of."""
        if self.image.startswith("/"):
            if self.engine != "podman":
                raise UsageError(f"{self.engine} takes no folder as a root: import it as an image first")
            return ["--rootfs", f"{self.image}:O"]
        if self.image:
            if self._ask("image", "inspect", self.image).returncode != 0:
                raise UsageError(f"{self.engine} has no image {self.image}: {self.engine} pull {self.image}")
            return [self.image]
        archive = skeleton()
        name = f"localhost/mlagentbench-host:{blake3(archive).hexdigest(length=8)}"
        if self._ask("image", "inspect", name).returncode != 0:
            made = self._ask("import", "-", name, given=archive)
            if made.returncode != 0:
                said = made.stderr.decode("utf-8", "replace").strip()
                raise SandboxFault(f"{self.engine} cannot make an image: {said}")
        return [name]

    def _limits(self, box: Box, group: Group) -> list[str]:
        """Where we have no control groups of our own, the engine may have."""
        # Named, because what an engine sets by itself may be more than it may give.
        own = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        most = NUMBERS if own == resource.RLIM_INFINITY else min(NUMBERS, own)
        processes = box.limits.processes
        if not group.folders and not self._bounds:
            most = min(most, processes)
        bounds = ["--ulimit", f"nproc={most}:{most}", "--ulimit", f"nofile={FILES}:{FILES}"]
        if group.folders or not self._bounds:
            return bounds
        memory = str(int(box.limits.memory_gb * GB))
        return [*bounds, "--memory", memory, "--memory-swap", memory, "--pids-limit", str(processes)]

    @cached_property
    def _bounds(self) -> bool:
        """Whether the engine can bound memory and processes."""
        if self.engine != "podman":
            return True
        told = json.loads(self._ask("info", "--format", "json").stdout or b"{}")
        return {"memory", "pids"} <= set(told.get("host", {}).get("cgroupControllers") or ())

    def _ask(self, *words: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run([self.engine, *words], input=given, capture_output=True, check=False, timeout=300)


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
def _door(box: Box) -> Iterator[Path]:
    """The files by which a container begins; once it has, they are not needed any more."""
    outer = Path(tempfile.mkdtemp(prefix="mlagentbench-"))  # the name of a socket must be short
    door = outer / "box"
    try:
        door.mkdir()
        user = box.owner or os.getuid()
        files = {"passwd": PASSWD.format(user), "group": GROUP.format(user), "hosts": HOSTS}
        files["driver.py"] = Path(container_driver.__file__).read_text()
        for name, text in files.items():
            (door / name).write_text(text)
            (door / name).chmod(0o644)
        door.chmod(0o755)
        yield door
    finally:
        shutil.rmtree(outer)


def _accepted(listener: socket.socket, child: "subprocess.Popen[bytes]") -> socket.socket | None:
    """The first process of the container, when it asks for orders; none if the engine gave up."""
    ended = os.pidfd_open(child.pid)
    try:
        ready = _ready([listener.fileno(), ended], SECONDS)
    finally:
        os.close(ended)
    if listener.fileno() in ready:
        return listener.accept()[0]
    child.kill()
    child.wait()
    return None


def _ready(fds: Sequence[int], seconds: float) -> list[int]:
    """Those of which there is news, as soon as there are any."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(seconds * 1000)]


def _attend(
    child: "subprocess.Popen[bytes]",
    channel: socket.socket,
    first: int,
    box: Box,
    group: Group,
    argv: Sequence[str],
    stdin: int,
) -> Process:
    """Bound the first process while nothing else runs, give it the command, and watch over both."""
    if not first:
        raise SandboxFault(f"{gate.FAILED}: its processes cannot be seen from here")
    group.adopt(first)
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    environment = {**box.runtime.environment, **box.environment}
    order = {
        "argv": list(argv),
        "environment": environment,
        "bounds": [*gate.bounds(box.limits, group).items()],
        "filter": seccomp.program().hex(),
    }
    with ours, theirs:
        socket.send_fds(channel, [json.dumps(order).encode() + b"\n"], [theirs.fileno(), writer])
        os.close(writer)
        child.stdin, child.stdout = FileIO(ours.detach(), "r+"), FileIO(reader)
    try:
        gate.await_ready(child)
        tree = ContainerTree(child.pid, group, first)
        process = ContainerProcess(child, tree, Watch(box.workspace, box.limits, group, tree), box.stopping)
    except BaseException:
        child.stdin.close()
        child.stdout.close()
        raise
    process.channel = channel
    gate.let_through(child, stdin)
    return process
