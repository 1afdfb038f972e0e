"""What a sandbox is to the rest of the project: a box described, a command run in it, an account of what it did."""

import os
import select
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, ClassVar, Literal

from mlagentbench.errors import SandboxFault
from mlagentbench.records import Execution, Limit, Limits
from mlagentbench.runtimes.base import Runtime
from mlagentbench.sandbox import gate
from mlagentbench.sandbox.access.listening import Book
from mlagentbench.sandbox.cgroups import Group
from mlagentbench.sandbox.output import Output
from mlagentbench.sandbox.processes import Tree
from mlagentbench.sandbox.watch import Watch, require_room
from mlagentbench.stopping import Stopping

TICK = 0.1  # seconds between two looks at the limits


@dataclass(frozen=True)
class Box:
    """What a command may see and use."""

    workspace: Path
    runtime: Runtime
    limits: Limits = field(default_factory=Limits)
    read_only: tuple[str, ...] = ()
    mounts: tuple[tuple[Path, str], ...] = ()
    masked: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    owner: int | None = None
    stopping: Stopping = field(default_factory=Stopping)
    resident: bool = False  # its command is the first process inside: no other can end it, and it takes all with it
    book: Book | None = None
    calm: Callable[[], bool] = lambda: True  # whether nobody else is at work in the workspace

    def require_calm(self) -> None:
        """Whoever had himself woken while all was set up may have exchanged what is shown inside."""
        if not self.calm():
            raise SandboxFault("somebody was at work in the workspace while a command was about to begin")


class Process:
    """A command that is running in a sandbox, with all its descendants."""

    def __init__(self, child: "subprocess.Popen[bytes]", tree: Tree, watch: Watch, stopping: Stopping) -> None:
        self.child, self.tree, self.watch, self.stopping = child, tree, watch, stopping
        self.started = time.monotonic()
        self.limit: Limit | None = None
        self._closed = False
        assert child.stdout is not None
        self.stdout: IO[bytes] = child.stdout

    def pump(self, output: Output, seconds: float, news: int | None = None) -> Literal["ended", "limit", "news"]:
        """Move what it prints to `output` until it ends, oversteps a limit, or says something on the other way."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        for fd in (self.stdout.fileno(), self.tree.ended, *([] if news is None else [news])):
            poll.register(fd, select.POLLIN)
        while True:
            ready = dict(poll.poll(TICK * 1000))
            if self.tree.ended in ready:
                return "ended"
            if ready.get(self.stdout.fileno(), 0) & select.POLLIN:
                output.write(os.read(self.stdout.fileno(), 1 << 16))
            elif self.stdout.fileno() in ready:  # it closed its output, and may go on for all that
                poll.unregister(self.stdout)
            self.stopping.heed()
            self.limit = "time" if time.monotonic() > deadline else self.watch.limit(news in ready)
            if self.limit:
                return "limit"
            if news in ready:
                return "news"

    def drain(self, output: Output) -> None:
        """Take what is still in the pipe of a command that is frozen or gone."""
        os.set_blocking(self.stdout.fileno(), False)
        with suppress(BlockingIOError):
            while data := os.read(self.stdout.fileno(), 1 << 16):
                output.write(data)

    def finish(self, output: Output) -> Execution:
        """End it with everything that it started, take the rest of its output and account for it all."""
        if self.limit is None:
            self.child.wait()
        self.tree.end()
        self.child.wait()
        seconds = time.monotonic() - self.started
        self.drain(output)
        limit = self.limit or self.watch.last(failed=self.child.returncode != 0)
        peak = self.watch.peak_mb
        self.close()
        return Execution(
            exit_code=self.child.returncode if self.limit is None else None,
            seconds=round(seconds, 3),
            peak_mb=round(peak, 1),
            limit=limit,
            output_bytes=output.size,
        )

    def close(self) -> None:
        """End it if it still runs, and give back what it held."""
        if self._closed:
            return
        self._closed = True
        try:
            self.tree.end()
            self.child.wait()
        finally:
            for stream in (self.child.stdin, self.stdout):
                if stream:
                    stream.close()
            self.tree.close()
            self.watch.close()


def attend(child: "subprocess.Popen[bytes]", box: Box, group: Group, stdin: int, mark: str | None = None) -> Process:
    """Watch over a command that waits at the gate, and let it through."""
    try:
        require_room(box.workspace)
        box.require_calm()
        tree = Tree(child.pid, group, mark)
        process = Process(child, tree, Watch(box.workspace, box.limits, group, tree), box.stopping)
    except BaseException:
        gate.abandon(child)
        raise
    gate.let_through(child, stdin)
    return process


class Sandbox(ABC):
    """A way of running commands, with the GPUs that were granted."""

    name: str
    needs: ClassVar[tuple[str, ...]] = ()  # variables of the harness's environment, to begin at all

    def __init__(self, gpu: str = "") -> None:
        self.gpu = gpu

    @abstractmethod
    def start(self, argv: Sequence[str], box: Box, stdin: int = subprocess.DEVNULL) -> Process:
        """Begin a command in the box; the caller must `finish` or `close` it."""

    def run(self, argv: Sequence[str], box: Box, seconds: float, output: Output) -> Execution:
        """Run a command to its end, or to its limit."""
        process = self.start(argv, box)
        try:
            process.pump(output, seconds)
            return process.finish(output)
        finally:
            process.close()

    def release(self, box: Box) -> None:  # noqa: B027 - most need nothing
        """Forget what was held for a box's workspace."""
