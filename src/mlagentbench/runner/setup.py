"""What a run needs before it can begin: task, data, runtime, sandbox; and the record of what was asked."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import mlagentbench
from mlagentbench.errors import UsageError
from mlagentbench.hardware import hardware
from mlagentbench.home import require_writable
from mlagentbench.preparation.download import Say
from mlagentbench.preparation.prepare import Prepared, lookup, prepared
from mlagentbench.records import Baseline, Contestant, Hashes, Limits, RunSpec
from mlagentbench.runner.baselines import baseline_of
from mlagentbench.runtimes.base import Runtime, ensure
from mlagentbench.sandbox.access.listening import require
from mlagentbench.sandbox.base import Sandbox
from mlagentbench.sandbox.choose import sandbox
from mlagentbench.sandbox.gpu import granted
from mlagentbench.task import Task


@dataclass(frozen=True)
class Setup:
    """Everything about a run that is not the agent."""

    task: Task
    edition: str
    data: Prepared
    runtime: Runtime
    sandbox: Sandbox
    baseline: Baseline | None = None
    ledger: bool = False

    @property
    def hashes(self) -> Hashes:
        """What a result will depend on."""
        task = self.task
        return Hashes(task=task.hash, grader=task.grader_hash, data=self.data.hash, runtime=self.runtime.hash)

    def spec(self, who: Contestant, seed: int, limits: Limits, interactive: bool = False) -> RunSpec:
        """run.json: what is asked for."""
        return RunSpec(
            version=mlagentbench.__version__,
            id=secrets.token_hex(8),
            task=self.task.origin,
            edition=self.edition,
            **who.model_dump(),
            seed=seed,
            limits=limits,
            sandbox=self.sandbox.name,
            gpu=self.sandbox.gpu,
            interactive=interactive,
            ledger=self.ledger,
            metric=self.task.config.metric,
            better=self.task.config.better,
            baseline=self.baseline,
            hashes=self.hashes,
            hardware=hardware(),
            kind=self.data.kind,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def set_up(
    task: str, edition: str, isolation: str, say: Say, instance: str = "", gpu: str = "", ledger: bool = False
) -> Setup:
    """Make ready whatever is missing, once."""
    loaded = Task.load(task)
    loaded.edition(edition)
    require_writable()
    granted(gpu)
    isolated = sandbox(isolation, gpu)
    if ledger:
        require(isolation)
    runtime = ensure(loaded.config.runtime, say)
    data = prepared(loaded, edition, say, instance)
    return Setup(loaded, edition, data, runtime, isolated, baseline_of(loaded, edition, data), ledger)


def set_up_again(spec: RunSpec, say: Say) -> Setup:
    """The same for a run that exists, on this machine or another; what strangers left is never run unsandboxed."""
    if spec.imported and not spec.hashes.data:
        raise UsageError("it was imported without a grade: import its log again with --grade EDITION")
    task = Task.load(spec.task)
    require_writable()
    isolated = sandbox("bwrap" if spec.imported else spec.sandbox, spec.gpu)
    data, runtime = _same_data(task, spec, say), ensure(task.config.runtime, say)
    return Setup(task, spec.edition, data, runtime, isolated, spec.baseline, spec.ledger)


def _same_data(task: Task, spec: RunSpec, say: Say) -> Prepared:
    """The very data that the run used; the default instance can be made again."""
    try:
        return lookup(task, spec.edition, spec.hashes.data)
    except UsageError:
        data = prepared(task, spec.edition, say)
        if data.hash != spec.hashes.data:
            raise
        return data


def changed(spec: RunSpec, setup: Setup) -> list[str]:
    """What a run depends on that is not what it was."""
    now = setup.hashes.model_dump()
    return [name for name, value in spec.hashes.model_dump().items() if now[name] != value]


def new_place(task: str, agent: str) -> Path:
    """A folder below ./runs for a run that was given none."""
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    place = Path("runs", f"{task}-{Path(agent).stem}-{stamp}")
    number = 2
    while place.exists():
        place = place.with_name(f"{task}-{Path(agent).stem}-{stamp}-{number}")
        number += 1
    return place
