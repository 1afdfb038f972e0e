"""An outside program in the sandbox, which is let run until it asks a model, and waits for the answer."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from mlagentbench.endpoint import bridge_driver
from mlagentbench.endpoint.server import Endpoint, ModelRequest
from mlagentbench.records import Execution
from mlagentbench.sandbox.base import Sandbox, SandboxProcess, SandboxSpec
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.system.cache import temporary_dir

SANDBOX_PORT = 8791  # inside, where nothing else listens
PLACEHOLDER_API_KEY = "none-needed"


@dataclass(frozen=True)
class ProgramSpec:
    """What is run, and what it finds besides the workspace; `{url}` in a variable is where the models are."""

    command: Sequence[str]
    mounts: tuple[tuple[Path, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class ExternalProgram:
    """One program at work. It is frozen whenever nobody waits for it."""

    def __init__(self, sandbox: Sandbox, box: SandboxSpec, program: ProgramSpec, output: Path) -> None:
        self.request: ModelRequest | None = None
        self.output = CommandOutput(output)
        self._exit_stack = ExitStack()
        if sandbox.name == "none":
            self._endpoint = Endpoint(None)
            argv, mounts = list(program.command), box.mounts
            url = f"http://127.0.0.1:{self._endpoint.port}"
        else:
            folder = (
                self._exit_stack.enter_context(temporary_dir()) / "endpoint"
            )  # which everybody may enter who gets so far
            folder.mkdir()
            folder.chmod(0o755)
            self._endpoint = Endpoint(folder)
            bridge = (Path(bridge_driver.__file__), "/opt/bridge.py")
            mounts = (*box.mounts, *program.mounts, bridge, (folder, "/opt/endpoint"))
            argv = [
                "python",
                "-u",
                "-P",
                "/opt/bridge.py",
                "/opt/endpoint/socket",
                str(SANDBOX_PORT),
                *program.command,
            ]
            url = f"http://127.0.0.1:{SANDBOX_PORT}"
        given = {**endpoint_variables(url), **box.environment, **program.environment}
        box = replace(box, mounts=mounts, environment=given)
        try:
            self._process: SandboxProcess = sandbox.start(argv, box)
        except BaseException:
            self._release()
            raise

    def run_until_request(self, seconds: float) -> Literal["asks", "exited", "limit"]:
        """Let it run until it asks a model, ends, or has taken too long."""
        self._process.tree.resume()
        how = self._process.pump_output(self.output, seconds, self._endpoint.request_fd)
        if how != "message":
            return how
        self._process.tree.pause()
        self._process.drain_output(self.output)
        self.request = self._endpoint.take_request()
        return "asks"

    @property
    def stayed_paused(self) -> bool:
        """Whether it has done nothing since it asked."""
        return self._process.tree.cpu_seconds_while_paused == 0

    @property
    def mapped_inodes(self) -> set[int]:
        """The files that its memory is, by inode."""
        return self._process.tree.find_mapped_inodes()

    def finish(self) -> Execution:
        """Account for a program that has ended, or hit a limit."""
        try:
            return self._process.finish(self.output)
        finally:
            self.close()

    def close(self) -> None:
        """End it with everything that it started."""
        self._process.close()
        self.output.__exit__(None)
        self._release()

    def _release(self) -> None:
        self._endpoint.close()
        self._exit_stack.close()


def endpoint_variables(url: str) -> dict[str, str]:
    """The variables by which programs find their model."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": PLACEHOLDER_API_KEY,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_BASE": url,
        "ANTHROPIC_API_KEY": PLACEHOLDER_API_KEY,
    }
