"""What a sandbox is to the rest of the project: a box described, a command run in it, an account of what it did."""

import os
import select
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from mlagentbench.records import Execution, Limit, Limits
from mlagentbench.runtimes.base import Runtime
from mlagentbench.sandbox.output import Output
from mlagentbench.sandbox.watch import Watch, family

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


class Process:
    """A command that is running in a sandbox, with all its descendants."""

    def __init__(self, child: "subprocess.Popen[bytes]", watch: Watch) -> None:
        self.child = child
        self.watch = watch
        self.started = time.monotonic()
        self.limit: Limit | None = None
        self._pidfd = os.pidfd_open(child.pid)
        assert child.stdout is not None
        self.stdout: IO[bytes] = child.stdout

    def pump(self, output: Output, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Move what it prints to `output` until it ends or `until` says so; False when a limit stopped it."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.stdout, select.POLLIN)
        poll.register(self._pidfd, select.POLLIN)
        while not until():
            ready = dict(poll.poll(TICK * 1000))
            if self._pidfd in ready:
                return True
            if ready.get(self.stdout.fileno(), 0) & select.POLLIN:
                output.write(os.read(self.stdout.fileno(), 1 << 16))
            elif ready:  # it closed its output, and may go on for all that
                poll.unregister(self.stdout)
            self.limit = "time" if time.monotonic() > deadline else self.watch.limit()
            if self.limit:
                self.kill()
                self.drain(output)
                return False
        return True

    def drain(self, output: Output) -> None:
        """Take what is still in the pipe, without waiting for anyone who holds its other end."""
        os.set_blocking(self.stdout.fileno(), False)
        with suppress(BlockingIOError):
            while data := os.read(self.stdout.fileno(), 1 << 16):
                output.write(data)

    def pause(self) -> None:
        """Stop the whole tree where it is, so that nothing changes between two steps."""
        seen: set[int] = set()
        while fresh := set(family(self.child.pid)) - seen - {self.child.pid}:
            for pid in fresh:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            seen |= fresh

    def unpause(self) -> None:
        """Let the tree go on."""
        for pid in family(self.child.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it with everything that it started."""
        self.watch.kill(self.child.pid)

    def finish(self, output: Output) -> Execution:
        """Wait for the end, take the rest of the output and account for it all."""
        self.kill_leftovers()
        self.child.wait()
        seconds = time.monotonic() - self.started
        self.drain(output)
        limit = self.limit or self.watch.limit(final=True)
        peak = self.watch.peak_mb
        self.close()
        return Execution(
            exit_code=self.child.returncode if self.limit is None else None,
            seconds=round(seconds, 3),
            peak_mb=round(peak, 1),
            limit=limit,
            output_bytes=output.size,
        )

    def kill_leftovers(self) -> None:
        """Nothing that the command started may outlive it."""
        self.watch.kill_leftovers(self.child.pid)

    def close(self) -> None:
        """End it if it still runs, and give back what it held."""
        if self.child.returncode is None:
            self.kill()
            self.child.wait()
        for stream in (self.child.stdin, self.stdout):
            if stream:
                with suppress(OSError):
                    stream.close()
        with suppress(OSError):
            os.close(self._pidfd)
        self._pidfd = -1
        self.watch.close()


class Sandbox(ABC):
    """A way of running commands."""

    name: str

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
