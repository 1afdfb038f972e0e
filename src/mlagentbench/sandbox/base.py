"""The sandbox interface: what a command may use, a running command, and the base class of all sandboxes."""

import logging
import os
import select
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, ClassVar, Literal, Protocol

from mlagentbench.errors import SandboxFault
from mlagentbench.records import Execution, Limit, Limits
from mlagentbench.runtimes.base import Runtime
from mlagentbench.sandbox import handshake
from mlagentbench.sandbox.access_log.recording import AccessLog
from mlagentbench.sandbox.cgroups import Cgroup, find_controller_folders
from mlagentbench.sandbox.landlock.folders import PrivateFolders, ReadOnlyFiles
from mlagentbench.sandbox.limit_monitor import LimitMonitor, require_free_disk
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.processes import ProcessTree
from mlagentbench.system.stop_token import StopToken

log = logging.getLogger(__name__)

LIMIT_POLL_INTERVAL_S = 0.1
POLLED_LIMITS = (
    "no cgroup: memory and processes are checked ten times a second, and may exceed their limits briefly"
)


@dataclass(frozen=True)
class SandboxSpec:
    """What a command may see and use.

    Attributes:
        workspace: Folder that is writable inside, at /workspace.
        runtime: Python environment of the command.
        limits: Limits on memory, processes, disk and files.
        read_only_paths: Paths relative to the workspace that cannot be changed; "." is all of it.
        mounts: Read-only mounts, each as (path on the host, path inside).
        writable_mounts: Writable folders besides the workspace, each as (path on the host, path inside). They
            count toward the disk limit. Only bubblewrap supports them.
        masked_paths: Paths inside that are covered by an empty folder.
        environment: Environment variables, added to those of the runtime.
        uid: User that the command runs as; required if the harness is root.
        stop_token: Ends the command when a stop is requested.
        run_as_init: Make the command the first process inside. No other process can kill it, and all others
            are killed when it exits.
        access_log: Where to record the files and sockets that the command tries to open.
        is_workspace_idle: Returns False if another process has been active in the workspace.
    """

    workspace: Path
    runtime: Runtime
    limits: Limits = field(default_factory=Limits)
    read_only_paths: tuple[str, ...] = ()
    mounts: tuple[tuple[Path, str], ...] = ()
    writable_mounts: tuple[tuple[Path, str], ...] = ()
    masked_paths: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    uid: int | None = None
    stop_token: StopToken = field(default_factory=StopToken)
    run_as_init: bool = False
    access_log: AccessLog | None = None
    is_workspace_idle: Callable[[], bool] = lambda: True

    @property
    def writable_folders(self) -> tuple[Path, ...]:
        """The folders on the host that the command can change, the workspace first."""
        return (self.workspace, *(source for source, _ in self.writable_mounts))

    def require_idle_workspace(self) -> None:
        """Raise if a process that resumed during setup may have replaced files that are mounted inside."""
        if not self.is_workspace_idle():
            raise SandboxFault("A process was active in the workspace while a command was being set up.")


class CommandService(Protocol):
    """Something outside the sandbox that one command may call, such as a model."""

    @property
    def request_fd(self) -> int:
        """A descriptor that is readable while a request waits."""

    def wrap_command(self, argv: Sequence[str]) -> list[str]:
        """The command with what it needs to reach the service."""

    def extend_spec(self, spec: SandboxSpec) -> SandboxSpec:
        """The spec with the mounts and variables of the service."""

    def serve_request(self) -> None:
        """Answer the request that has waited longest."""

    def close(self) -> None:
        """Refuse waiting requests and release resources."""


class SandboxProcess:
    """A command running in a sandbox, with all its descendants."""

    def __init__(
        self,
        child: "subprocess.Popen[bytes]",
        tree: ProcessTree,
        monitor: LimitMonitor,
        stop_token: StopToken,
        private_folders: PrivateFolders | None = None,
        read_only_files: ReadOnlyFiles | None = None,
    ) -> None:
        self.child, self.tree, self.monitor, self.stop_token = child, tree, monitor, stop_token
        self._private_folders, self._read_only_files = private_folders, read_only_files
        self.started_at = time.monotonic()
        self.limit: Limit | None = None
        self.service: CommandService | None = None  # served by pump_output, while the command is paused
        self._closed = False
        assert child.stdout is not None
        self.stdout: IO[bytes] = child.stdout

    def pump_output(
        self, output: CommandOutput, timeout_s: float, message_fd: int | None = None
    ) -> Literal["exited", "limit", "message"]:
        """Copy the command's output until something happens.

        Args:
            output: Receives what the command prints.
            timeout_s: Time limit; exceeding it counts as the limit "time".
            message_fd: A second descriptor to wait for, such as a socket to the command.

        Returns:
            "exited" if the command has exited, "limit" if it exceeded a limit or was cancelled (then `limit`
            says which),
            "message" if `message_fd` is readable.

        Raises:
            Stopped: A stop was requested.
        """
        deadline = time.monotonic() + timeout_s
        poll = select.poll()
        service_fd = self.service.request_fd if self.service else None
        for fd in (self.stdout.fileno(), self.tree.pidfd, message_fd, service_fd):
            if fd is not None:
                poll.register(fd, select.POLLIN)
        while True:
            ready = dict(poll.poll(LIMIT_POLL_INTERVAL_S * 1000))
            if self.tree.pidfd in ready:
                return "exited"
            if ready.get(self.stdout.fileno(), 0) & select.POLLIN:
                output.write(os.read(self.stdout.fileno(), 1 << 16))
            elif self.stdout.fileno() in ready:  # it closed its output, but may still be running
                poll.unregister(self.stdout)
            self.stop_token.raise_if_requested()
            if self.service and service_fd in ready:
                # Paused, because limits are not checked meanwhile.
                self.pause()
                self.service.serve_request()
                self.resume()
            has_message = message_fd in ready
            self.limit = self._exceeded_limit(deadline, has_message)
            if self.limit:
                return "limit"
            if has_message:
                return "message"

    def _exceeded_limit(self, deadline: float, has_message: bool) -> Limit | None:
        if self.stop_token.command_cancelled:
            return "cancelled"
        return "time" if time.monotonic() > deadline else self.monitor.check_limits(has_message)

    def pause(self) -> None:
        """Stop all processes, so that nothing changes between two steps."""
        self.tree.pause()
        if self._read_only_files:
            self._read_only_files.restore()

    def resume(self) -> None:
        """Let all processes continue."""
        if self._read_only_files:
            self._read_only_files.protect()
        self.tree.resume()

    def drain_output(self, output: CommandOutput) -> None:
        """Read what is left in the pipe of a command that is paused or has exited."""
        os.set_blocking(self.stdout.fileno(), False)
        with suppress(BlockingIOError):
            while data := os.read(self.stdout.fileno(), 1 << 16):
                output.write(data)

    def finish(self, output: CommandOutput) -> Execution:
        """Kill everything that the command started and collect the rest of its output.

        If no limit was exceeded, this waits for the command to exit.

        Returns:
            Exit code, duration, peak memory and exceeded limit.

        Raises:
            SandboxFault: A process is still alive after being killed.
        """
        if self.limit is None:
            self.child.wait()
        self.tree.kill()
        self.child.wait()
        seconds = time.monotonic() - self.started_at
        self.drain_output(output)
        limit = self.limit or self.monitor.check_limits_at_exit(failed=self.child.returncode != 0)
        peak_mb = self.monitor.peak_mb
        self.close()
        return Execution(
            exit_code=self.child.returncode if self.limit is None else None,
            seconds=round(seconds, 3),
            peak_mb=round(peak_mb, 1),
            limit=limit,
            output_bytes=output.size_bytes,
        )

    def close(self) -> None:
        """Kill the command if it is still running, and release its resources. May be called repeatedly."""
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
            if self.service:
                self.service.close()
            if self._read_only_files:
                self._read_only_files.restore()
            if self._private_folders:
                self._private_folders.remove()


def release_command(
    child: "subprocess.Popen[bytes]",
    spec: SandboxSpec,
    cgroup: Cgroup,
    stdin: int,
    command_id: str | None = None,
    private_folders: PrivateFolders | None = None,
    read_only_files: ReadOnlyFiles | None = None,
) -> SandboxProcess:
    """Start to monitor a command that waits in the handshake, then let it run.

    Args:
        child: The process that was started.
        spec: What the command may see and use.
        cgroup: The cgroup of the command.
        stdin: As given to `Sandbox.start`.
        command_id: Identifies the processes of the command if it has neither a pid namespace nor a
            supervisor.
        private_folders: Folders of the command besides its workspace, if the child is its supervisor.
        read_only_files: Files that are read-only while the command runs.
    """
    try:
        require_free_disk(spec.workspace)
        spec.require_idle_workspace()
        tree = ProcessTree(child.pid, cgroup, command_id, is_supervised=private_folders is not None)
        folders = (*spec.writable_folders, *([private_folders.disk] if private_folders else []))
        memory_folder = private_folders.memory if private_folders else None
        monitor = LimitMonitor(folders, spec.limits, cgroup, tree, memory_folder)
        process = SandboxProcess(child, tree, monitor, spec.stop_token, private_folders, read_only_files)
    except BaseException:
        handshake.abort(child)
        raise
    handshake.release(child, stdin)
    return process


class Sandbox(ABC):
    """Runs commands in isolation.

    Attributes:
        name: Name as given to `--sandbox`; it is stored in run.json.
        required_variables: Environment variables of the harness that this sandbox needs in order to start.
        mounts_files: Whether files can have other paths inside than on the host.
        gpu: GPUs that commands may use: "", "all", or comma-separated device numbers.
    """

    name: str
    required_variables: ClassVar[tuple[str, ...]] = ()
    mounts_files: ClassVar[bool] = True

    def __init__(self, gpu: str = "") -> None:
        self.gpu = gpu

    @abstractmethod
    def start(
        self, argv: Sequence[str], spec: SandboxSpec, stdin: int = subprocess.DEVNULL
    ) -> SandboxProcess:
        """Start a command.

        Args:
            argv: Program and arguments; "python" is the Python of the runtime.
            spec: What the command may see and use.
            stdin: DEVNULL, or PIPE for a socket that can be read and written as `process.child.stdin`.

        Returns:
            The running command. The caller must `finish` or `close` it.

        Raises:
            SandboxFault: The sandbox cannot be started. This is never the agent's failure.
        """

    def start_with_service(
        self,
        argv: Sequence[str],
        spec: SandboxSpec,
        service: CommandService | None,
        stdin: int = subprocess.DEVNULL,
    ) -> SandboxProcess:
        """Start a command that may call a service, which is closed with the command."""
        if service is None:
            return self.start(argv, spec, stdin)
        try:
            process = self.start(service.wrap_command(argv), service.extend_spec(spec), stdin)
        except BaseException:
            service.close()
            raise
        process.service = service
        return process

    def run(
        self,
        argv: Sequence[str],
        spec: SandboxSpec,
        timeout_s: float,
        output: CommandOutput,
        service: CommandService | None = None,
    ) -> Execution:
        """Run a command until it exits or exceeds a limit.

        Args:
            argv: Program and arguments.
            spec: What the command may see and use.
            timeout_s: Time limit.
            output: Receives what the command prints.
            service: Something outside that the command may call; it is closed at the end.

        Returns:
            Exit code, duration, peak memory and exceeded limit.

        Raises:
            SandboxFault: The sandbox cannot be started, or a process cannot be killed.
            Stopped: A stop was requested.
        """
        process = self.start_with_service(argv, spec, service)
        try:
            process.pump_output(output, timeout_s)
            execution = process.finish(output)
            log.debug(
                "%s: %s: exit code %s, limit %s", self.name, argv[0], execution.exit_code, execution.limit
            )
            return execution
        finally:
            process.close()

    @property
    def uses_separate_user(self) -> bool:
        """Whether commands of a root harness run as a user of their own."""
        return True

    @property
    def limitations(self) -> tuple[str, ...]:
        """What this sandbox cannot guarantee on this machine; stored in run.json."""
        return () if find_controller_folders() else (POLLED_LIMITS,)

    def path_inside(self, path: Path, inside: str) -> str:
        """The path inside of a file of the host that `SandboxSpec.mounts` mounts at `inside`, if it can."""
        return inside if self.mounts_files else str(path)

    def release_workspace(self, spec: SandboxSpec) -> None:  # noqa: B027 - most need nothing
        """Release what is held for a workspace, which may be removed afterwards."""
