"""What a run needs before it can begin: task, data, runtime, sandbox; and the record of what was asked."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import mlagentbench
from mlagentbench.errors import UsageError
from mlagentbench.preparation.prepare import PreparedData, find_prepared_data, prepare_data
from mlagentbench.records import AgentSpec, Baseline, Hashes, Limits, RunSpec
from mlagentbench.runner.baselines import find_baseline
from mlagentbench.runtimes.base import Runtime, ensure_runtime
from mlagentbench.sandbox.access_log.recording import require_access_log_support
from mlagentbench.sandbox.base import Sandbox
from mlagentbench.sandbox.gpu import granted_devices
from mlagentbench.sandbox.selection import create_sandbox
from mlagentbench.system.cache import require_writable_cache
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Task


@dataclass(frozen=True)
class Setup:
    """Everything about a run that is not the agent."""

    task: Task
    edition: str
    data: PreparedData
    runtime: Runtime
    sandbox: Sandbox
    baseline: Baseline | None = None
    record_access: bool = False

    @property
    def hashes(self) -> Hashes:
        """What a result will depend on."""
        task = self.task
        return Hashes(task=task.hash, grader=task.grader_hash, data=self.data.hash, runtime=self.runtime.hash)

    def create_run_spec(
        self, agent_spec: AgentSpec, seed: int, limits: Limits, interactive: bool = False
    ) -> RunSpec:
        """run.json: what is asked for."""
        return RunSpec(
            version=mlagentbench.__version__,
            id=secrets.token_hex(8),
            task=self.task.load_name,
            edition=self.edition,
            **agent_spec.model_dump(),
            seed=seed,
            limits=limits,
            sandbox=self.sandbox.name,
            gpu=self.sandbox.gpu,
            interactive=interactive,
            record_access=self.record_access,
            metric=self.task.config.metric,
            better=self.task.config.better,
            baseline=self.baseline,
            hashes=self.hashes,
            hardware=detect_hardware(),
            kind=self.data.kind,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def prepare_setup(
    task: str,
    edition: str,
    sandbox_name: str,
    progress: ProgressCallback,
    instance: str = "",
    gpu: str = "",
    record_access: bool = False,
) -> Setup:
    """Make ready whatever is missing, once."""
    loaded = Task.load(task)
    loaded.edition(edition)
    require_writable_cache()
    granted_devices(gpu)
    isolated = create_sandbox(sandbox_name, gpu)
    if record_access:
        require_access_log_support(sandbox_name)
    runtime = ensure_runtime(loaded.config.runtime, progress)
    data = prepare_data(loaded, edition, progress, instance)
    return Setup(
        loaded, edition, data, runtime, isolated, find_baseline(loaded, edition, data), record_access
    )


def restore_setup(spec: RunSpec, progress: ProgressCallback) -> Setup:
    """The same for a run that exists, on this machine or another; what strangers left is never run unsandboxed."""
    if spec.imported and not spec.hashes.data:
        raise UsageError("it was imported without a grade: import its log again with --grade EDITION")
    task = Task.load(spec.task)
    require_writable_cache()
    isolated = create_sandbox("bwrap" if spec.imported else spec.sandbox, spec.gpu)
    data, runtime = _find_run_data(task, spec, progress), ensure_runtime(task.config.runtime, progress)
    return Setup(task, spec.edition, data, runtime, isolated, spec.baseline, spec.record_access)


def _find_run_data(task: Task, spec: RunSpec, progress: ProgressCallback) -> PreparedData:
    """The very data that the run used; the default instance can be made again."""
    try:
        return find_prepared_data(task, spec.edition, spec.hashes.data)
    except UsageError:
        data = prepare_data(task, spec.edition, progress)
        if data.hash != spec.hashes.data:
            raise
        return data


def find_changed_inputs(spec: RunSpec, setup: Setup) -> list[str]:
    """What a run depends on that is not what it was."""
    now = setup.hashes.model_dump()
    return [name for name, value in spec.hashes.model_dump().items() if now[name] != value]


def choose_run_folder(task: str, agent: str) -> Path:
    """A folder below ./runs for a run that was given none."""
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    place = Path("runs", f"{task}-{Path(agent).stem}-{stamp}")
    number = 2
    while place.exists():
        place = place.with_name(f"{task}-{Path(agent).stem}-{stamp}-{number}")
        number += 1
    return place
