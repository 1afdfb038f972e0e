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
from mlagentbench.sandbox import handshake
from mlagentbench.sandbox.access_log.recording import AccessLog
from mlagentbench.sandbox.cgroups import Cgroup
from mlagentbench.sandbox.limit_monitor import LimitMonitor, require_free_disk
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.processes import ProcessTree
from mlagentbench.system.stop_token import StopToken

LIMIT_POLL_INTERVAL_S = 0.1  # seconds between two looks at the limits


@dataclass(frozen=True)
class SandboxSpec:
    """What a command may see and use."""

    workspace: Path
    runtime: Runtime
    limits: Limits = field(default_factory=Limits)
    read_only_paths: tuple[str, ...] = ()
    mounts: tuple[tuple[Path, str], ...] = ()
    masked_paths: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    uid: int | None = None
    stop_token: StopToken = field(default_factory=StopToken)
    run_as_init: bool = (
        False  # its command is the first process inside: no other can end it, and it takes all with it
    )
    access_log: AccessLog | None = None
    is_workspace_idle: Callable[[], bool] = lambda: True  # whether nobody else is at work in the workspace

    def require_idle_workspace(self) -> None:
        """Whoever had himself woken while all was set up may have exchanged what is shown inside."""
        if not self.is_workspace_idle():
            raise SandboxFault("somebody was at work in the workspace while a command was about to begin")


class SandboxProcess:
    """A command that is running in a sandbox, with all its descendants."""

    def __init__(
        self, child: "subprocess.Popen[bytes]", tree: ProcessTree, watch: LimitMonitor, stopping: StopToken
    ) -> None:
        self.child, self.tree, self.monitor, self.stop_token = child, tree, watch, stopping
        self.started_at = time.monotonic()
        self.limit: Limit | None = None
        self._closed = False
        assert child.stdout is not None
        self.stdout: IO[bytes] = child.stdout

    def pump_output(
        self, output: CommandOutput, timeout_s: float, message_fd: int | None = None
    ) -> Literal["ended", "limit", "news"]:
        """Move what it prints to `output` until it ends, oversteps a limit, or says something on the other way."""
        deadline = time.monotonic() + timeout_s
        poll = select.poll()
        for fd in (self.stdout.fileno(), self.tree.pidfd, *([] if message_fd is None else [message_fd])):
            poll.register(fd, select.POLLIN)
        while True:
            ready = dict(poll.poll(LIMIT_POLL_INTERVAL_S * 1000))
            if self.tree.pidfd in ready:
                return "ended"
            if ready.get(self.stdout.fileno(), 0) & select.POLLIN:
                output.write(os.read(self.stdout.fileno(), 1 << 16))
            elif self.stdout.fileno() in ready:  # it closed its output, and may go on for all that
                poll.unregister(self.stdout)
            self.stop_token.raise_if_requested()
            self.limit = (
                "time" if time.monotonic() > deadline else self.monitor.check_limits(message_fd in ready)
            )
            if self.limit:
                return "limit"
            if message_fd in ready:
                return "news"

    def drain_output(self, output: CommandOutput) -> None:
        """Take what is still in the pipe of a command that is frozen or gone."""
        os.set_blocking(self.stdout.fileno(), False)
        with suppress(BlockingIOError):
            while data := os.read(self.stdout.fileno(), 1 << 16):
                output.write(data)

    def finish(self, output: CommandOutput) -> Execution:
        """End it with everything that it started, take the rest of its output and account for it all."""
        if self.limit is None:
            self.child.wait()
        self.tree.kill()
        self.child.wait()
        seconds = time.monotonic() - self.started_at
        self.drain_output(output)
        limit = self.limit or self.monitor.check_limits_at_exit(failed=self.child.returncode != 0)
        peak = self.monitor.peak_mb
        self.close()
        return Execution(
            exit_code=self.child.returncode if self.limit is None else None,
            seconds=round(seconds, 3),
            peak_mb=round(peak, 1),
            limit=limit,
            output_bytes=output.size_bytes,
        )

    def close(self) -> None:
        """End it if it still runs, and give back what it held."""
        if self._closed:
            return
        self._closed = True
        try:
            self.tree.kill()
            self.child.wait()
        finally:
            for stream in (self.child.stdin, self.stdout):
                if stream:
                    stream.close()
            self.tree.close()
            self.monitor.close()


def release_command(
    child: "subprocess.Popen[bytes]", box: SandboxSpec, group: Cgroup, stdin: int, mark: str | None = None
) -> SandboxProcess:
    """Watch over a command that waits at the gate, and let it through."""
    try:
        require_free_disk(box.workspace)
        box.require_idle_workspace()
        tree = ProcessTree(child.pid, group, mark)
        process = SandboxProcess(
            child, tree, LimitMonitor(box.workspace, box.limits, group, tree), box.stop_token
        )
    except BaseException:
        handshake.abort(child)
        raise
    handshake.release(child, stdin)
    return process


class Sandbox(ABC):
    """A way of running commands, with the GPUs that were granted."""

    name: str
    required_variables: ClassVar[
        tuple[str, ...]
    ] = ()  # variables of the harness's environment, to begin at all

    def __init__(self, gpu: str = "") -> None:
        self.gpu = gpu

    @abstractmethod
    def start(
        self, argv: Sequence[str], spec: SandboxSpec, stdin: int = subprocess.DEVNULL
    ) -> SandboxProcess:
        """Begin a command in the box; the caller must `finish` or `close` it."""

    def run(
        self, argv: Sequence[str], spec: SandboxSpec, timeout_s: float, output: CommandOutput
    ) -> Execution:
        """Run a command to its end, or to its limit."""
        process = self.start(argv, spec)
        try:
            process.pump_output(output, timeout_s)
            return process.finish(output)
        finally:
            process.close()

    def release_workspace(self, spec: SandboxSpec) -> None:  # noqa: B027 - most need nothing
        """Forget what was held for a box's workspace."""
