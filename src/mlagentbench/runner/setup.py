"""What a run needs before it can begin: task, data, runtime, sandbox, agent; and the record of what was asked."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import mlagentbench
from mlagentbench import discovery
from mlagentbench.agents.base import Agent
from mlagentbench.errors import UsageError
from mlagentbench.hardware import hardware
from mlagentbench.preparation.prepare import Prepared, lookup, prepared
from mlagentbench.records import Hashes, Limits, RunSpec
from mlagentbench.runtimes.base import Runtime, ensure
from mlagentbench.sandbox.base import Sandbox
from mlagentbench.sandbox.choose import sandbox
from mlagentbench.task import Task

Say = Callable[[str], None]


@dataclass(frozen=True)
class Setup:
    """Everything about a run that is not the agent."""

    task: Task
    edition: str
    data: Prepared
    runtime: Runtime
    sandbox: Sandbox

    @property
    def hashes(self) -> Hashes:
        """What a result will depend on."""
        task = self.task
        return Hashes(task=task.hash, grader=task.grader_hash, data=self.data.hash, runtime=self.runtime.hash)

    def spec(self, agent: str, seed: int, limits: Limits, interactive: bool = False, model: str = "") -> RunSpec:
        """run.json: what is asked for."""
        return RunSpec(
            version=mlagentbench.__version__,
            id=secrets.token_hex(8),
            task=self.task.origin,
            edition=self.edition,
            agent=agent,
            model=model,
            seed=seed,
            limits=limits,
            sandbox=self.sandbox.name,
            interactive=interactive,
            hashes=self.hashes,
            hardware=hardware(),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def set_up(task: str, edition: str, isolation: str, say: Say, instance: str = "") -> Setup:
    """Make ready whatever is missing, once."""
    loaded = Task.load(task)
    loaded.edition(edition)
    isolated = sandbox(isolation)
    runtime = ensure(loaded.config.runtime, say)
    return Setup(loaded, edition, prepared(loaded, edition, say, instance), runtime, isolated)


def set_up_again(spec: RunSpec, say: Say) -> Setup:
    """The same for a run that exists, on this machine or another; what it depends on must not have changed."""
    task = Task.load(spec.task if spec.task in Task.names() or Path(spec.task).is_dir() else Path(spec.task).name)
    if spec.hashes.data == prepared(task, spec.edition, say).hash:
        data = prepared(task, spec.edition, say)
    else:
        data = lookup(task, spec.edition, spec.hashes.data)
    return Setup(task, spec.edition, data, ensure(task.config.runtime, say), sandbox(spec.sandbox))


def changed(spec: RunSpec, setup: Setup) -> list[str]:
    """What a run depends on that is not what it was."""
    now = setup.hashes.model_dump()
    return [name for name, value in spec.hashes.model_dump().items() if now[name] != value]


def agent_class(name: str) -> type[Agent]:
    """An agent by its name, or from a file."""
    if name.endswith(".py"):
        return discovery.only_subclass(discovery.module_at(Path(name)), Agent)  # type: ignore[type-abstract]
    if name not in discovery.names("agents"):
        known = ", ".join(discovery.names("agents"))
        raise UsageError(f"no agent {name!r}; there are: {known}; or give a file: --agent PATH.py")
    return discovery.only_subclass(discovery.plugin("agents", name), Agent)  # type: ignore[type-abstract]
