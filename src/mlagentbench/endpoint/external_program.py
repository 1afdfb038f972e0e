"""An external program in the sandbox. It runs until it calls a model, and is paused until the reply."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from mlagentbench.endpoint.sandbox_access import EndpointAccess
from mlagentbench.endpoint.server import ModelRequest
from mlagentbench.records import Execution
from mlagentbench.sandbox.base import Sandbox, SandboxProcess, SandboxSpec
from mlagentbench.sandbox.output import CommandOutput


@dataclass(frozen=True)
class ProgramSpec:
    """What to run, and the files and variables it needs besides the workspace.

    The placeholders are replaced in the command and in the values of the environment; so are {url} and
    {port}, which say where the endpoint is.
    """

    command: Sequence[str]
    mounts: tuple[tuple[Path, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    placeholders: Mapping[str, str] = field(default_factory=dict)

    def fill_placeholders(self, port: int) -> tuple[list[str], dict[str, str]]:
        """The command and the environment for an endpoint at this port."""
        values = {**self.placeholders, "{url}": f"http://127.0.0.1:{port}", "{port}": str(port)}
        pattern = re.compile("|".join(map(re.escape, values)))

        def fill(text: str) -> str:
            return pattern.sub(lambda match: values[match[0]], text)

        environment = {name: fill(value) for name, value in self.environment.items()}
        return [fill(word) for word in self.command], environment


class ExternalProgram:
    """A running program. Its processes are paused except during `run_until_request`."""

    def __init__(self, sandbox: Sandbox, spec: SandboxSpec, program: ProgramSpec, output: Path) -> None:
        self.request: ModelRequest | None = None
        self.refusals: list[str] = []  # all that have been taken
        self.output = CommandOutput(output)
        self._access = EndpointAccess(sandbox)
        self._endpoint = self._access.endpoint
        command, variables = program.fill_placeholders(self._access.port)
        argv = [*self._access.bridge_command, *command]
        mounts = spec.mounts
        if self._access.mounts:  # without a sandbox, nothing can be mounted
            mounts = (*spec.mounts, *program.mounts, *self._access.mounts)
        environment = {**self._access.variables, **spec.environment, **variables}
        spec = replace(spec, mounts=mounts, environment=environment)
        try:
            self._process: SandboxProcess = sandbox.start(argv, spec)
        except BaseException:
            self._access.close()
            raise

    def run_until_request(self, seconds: float) -> Literal["request", "exited", "limit"]:
        """Let it run until it calls a model, exits, or exceeds a limit."""
        self._process.resume()
        event = self._process.pump_output(self.output, seconds, self._endpoint.request_fd)
        if event != "message":
            return event
        self._process.pause()
        self._process.drain_output(self.output)
        self.request = self._endpoint.take_request()
        return "request"

    @property
    def stayed_paused(self) -> bool:
        """Whether it has used no CPU time since its request."""
        return self._process.tree.cpu_seconds_while_paused == 0

    @property
    def was_answered(self) -> bool:
        """Whether any of its requests to a model has been answered."""
        return self._endpoint.answered

    def take_refusals(self) -> list[str]:
        """The requests that were refused since the last call, and why."""
        refusals = self._endpoint.take_refusals()
        self.refusals += refusals
        return refusals

    @property
    def mapped_inodes(self) -> set[int]:
        """The inodes of the files that it has mapped into memory."""
        return self._process.tree.find_mapped_inodes()

    def finish(self) -> Execution:
        """Report on a program that has exited or hit a limit, and close it."""
        try:
            return self._process.finish(self.output)
        finally:
            self.close()

    def close(self) -> None:
        """Terminate it with all its child processes."""
        self._process.close()
        self.output.__exit__(None)
        self._access.close()
