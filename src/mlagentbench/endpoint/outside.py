"""An outside program in the sandbox, which is let run until it asks a model, and waits for the answer."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from mlagentbench.endpoint import bridge_driver
from mlagentbench.endpoint.server import Endpoint, Question
from mlagentbench.home import scratch
from mlagentbench.records import Execution
from mlagentbench.sandbox.base import Box, Process, Sandbox
from mlagentbench.sandbox.output import Output

PORT = 8791  # inside, where nothing else listens
KEY = "none-needed"


@dataclass(frozen=True)
class Program:
    """What is run, and what it finds besides the workspace; `{url}` in a variable is where the models are."""

    command: Sequence[str]
    mounts: tuple[tuple[Path, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Outside:
    """One program at work. It is frozen whenever nobody waits for it."""

    def __init__(self, sandbox: Sandbox, box: Box, program: Program, output: Path) -> None:
        self.question: Question | None = None
        self.output = Output(output)
        self._holds = ExitStack()
        if sandbox.name == "none":
            self._endpoint = Endpoint(None)
            argv, mounts = list(program.command), box.mounts
            url = f"http://127.0.0.1:{self._endpoint.port}"
        else:
            folder = self._holds.enter_context(scratch()) / "endpoint"  # which everybody may enter who gets so far
            folder.mkdir()
            folder.chmod(0o755)
            self._endpoint = Endpoint(folder)
            bridge = (Path(bridge_driver.__file__), "/opt/bridge.py")
            mounts = (*box.mounts, *program.mounts, bridge, (folder, "/opt/endpoint"))
            argv = ["python", "-u", "-P", "/opt/bridge.py", "/opt/endpoint/socket", str(PORT), *program.command]
            url = f"http://127.0.0.1:{PORT}"
        given = {**models_at(url), **box.environment, **program.environment}
        box = replace(box, mounts=mounts, environment=given)
        try:
            self._process: Process = sandbox.start(argv, box)
        except BaseException:
            self._release()
            raise

    def proceed(self, seconds: float) -> Literal["asks", "ended", "limit"]:
        """Let it run until it asks a model, ends, or has taken too long."""
        self._process.tree.unpause()
        how = self._process.pump(self.output, seconds, self._endpoint.news)
        if how != "news":
            return how
        self._process.tree.pause()
        self._process.drain(self.output)
        self.question = self._endpoint.take()
        return "asks"

    @property
    def at_rest(self) -> bool:
        """Whether it has done nothing since it asked."""
        return self._process.tree.stirred == 0

    @property
    def mapped(self) -> set[int]:
        """The files that its memory is, by inode."""
        return self._process.tree.mapped()

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
        self._holds.close()


def models_at(url: str) -> dict[str, str]:
    """The variables by which programs find their model."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_BASE": url,
        "ANTHROPIC_API_KEY": KEY,
    }
