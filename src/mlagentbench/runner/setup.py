"""Prepares what a run needs before it starts: task, data, runtime and sandbox."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import mlagentbench
from mlagentbench.errors import UsageError
from mlagentbench.formatting import baseline_command, to_single_line
from mlagentbench.preparation.prepare import PreparedData, find_prepared_data, prepare_data
from mlagentbench.records import AgentSpec, Baseline, Hashes, Levels, Limits, RunSpec, Start
from mlagentbench.runner.baselines import find_levels
from mlagentbench.runtimes.base import Runtime, ensure_runtime
from mlagentbench.sandbox.access_log.recording import require_access_log_support
from mlagentbench.sandbox.base import Sandbox
from mlagentbench.sandbox.gpu import granted_devices
from mlagentbench.sandbox.selection import create_sandbox
from mlagentbench.sandbox.trial import STRONGEST_FIRST, require_working
from mlagentbench.system.cache import require_writable_cache
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Task

UNKNOWN_LEVELS = Levels()


@dataclass(frozen=True)
class Setup:
    """Everything about a run except the agent."""

    task: Task
    edition: str
    data: PreparedData
    runtime: Runtime
    sandbox: Sandbox
    levels: Levels = UNKNOWN_LEVELS
    record_access: bool = False
    start: Start = "starter"

    @property
    def baseline(self) -> Baseline | None:
        """The scores of the unchanged start, if they were measured."""
        return self.levels.solution(self.start)

    @property
    def hashes(self) -> Hashes:
        """Hashes of everything that a result depends on besides the agent."""
        task = self.task
        return Hashes(task=task.hash, grader=task.grader_hash, data=self.data.hash, runtime=self.runtime.hash)

    def create_run_spec(
        self, agent_spec: AgentSpec, seed: int, limits: Limits, interactive: bool = False
    ) -> RunSpec:
        """Create the content of run.json."""
        return RunSpec(
            version=mlagentbench.__version__,
            id=secrets.token_hex(8),
            task=self.task.load_name,
            edition=self.edition,
            **agent_spec.model_dump(),
            seed=seed,
            limits=limits,
            sandbox=self.sandbox.name,
            sandbox_limitations=self.sandbox.limitations,
            gpu=self.sandbox.gpu,
            interactive=interactive,
            record_access=self.record_access,
            metric=self.task.config.metric,
            better=self.task.config.better,
            start=self.start,
            baseline=self.baseline,
            levels=self.levels,
            scale=self.task.config.scale,
            hashes=self.hashes,
            hardware=detect_hardware(),
            kind=self.data.kind,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def check_setup(
    task: str,
    edition: str,
    sandbox_name: str,
    gpu: str = "",
    record_access: bool = False,
    start: Start = "starter",
) -> tuple[Task, Sandbox]:
    """Check what takes no time, before anything is prepared; the arguments are those of `prepare_setup`.

    Raises:
        UsageError: Something does not exist, or this machine does not support it.
    """
    loaded_task = Task.load(task)
    loaded_task.edition(edition)
    loaded_task.solution(start)
    require_writable_cache()
    granted_devices(gpu)
    sandbox = create_sandbox(sandbox_name, gpu)
    require_working(sandbox.name, gpu)
    if loaded_task.config.grants.model and sandbox.name == "landlock":
        raise UsageError(f"Scripts of {task} use a model over a loopback, which --sandbox landlock has not.")
    if record_access:
        require_access_log_support(sandbox.name)
    return loaded_task, sandbox


def prepare_setup(
    task: str,
    edition: str,
    sandbox_name: str,
    progress: ProgressCallback,
    instance: str = "",
    gpu: str = "",
    record_access: bool = False,
    start: Start = "starter",
    warn_if_unjudged: bool = True,
) -> Setup:
    """Load the task and prepare its data, runtime and sandbox; what is already prepared is reused.

    Args:
        task: The name of a task, or the path of its folder.
        edition: "open" or "paper".
        sandbox_name: "auto" (the strongest that works), "bwrap", "landlock", "podman[:IMAGE]",
            "docker[:IMAGE]" or "none".
        progress: Called with a line of text before each slow operation.
        instance: A data instance drawn by `prepare --fresh` or `--twin`; empty for the default data.
        gpu: The GPUs that scripts may use: empty for none, "all", or numbers separated by commas.
        record_access: Record which files and sockets scripts try to open.
        start: The solution that the agent starts from: "starter", "reference" or "expert".
        warn_if_unjudged: Report if the score of the start is not known, so that success cannot be judged.

    Raises:
        UsageError: Something does not exist, or this machine does not support it.
    """
    loaded_task, sandbox = check_setup(task, edition, sandbox_name, gpu, record_access, start)
    if sandbox_name == "auto" and sandbox.name != STRONGEST_FIRST[0]:
        progress(f"Sandbox: {sandbox.name}, because {STRONGEST_FIRST[0]} does not work here: see doctor")
    runtime = ensure_runtime(loaded_task.config.runtime, progress)
    data = prepare_data(loaded_task, edition, progress, instance)
    levels = find_levels(loaded_task, edition, data)
    if warn_if_unjudged and levels.solution(start) is None:
        command = baseline_command(loaded_task.load_name, edition, data.hash, data.kind, start)
        progress(
            f"Warning: The score of the {start} is not known for this data, so success cannot be judged."
            f" Measure it with: {command}"
        )
    return Setup(loaded_task, edition, data, runtime, sandbox, levels, record_access, start)


def restore_setup(spec: RunSpec, progress: ProgressCallback) -> Setup:
    """Prepare the setup of an existing run, which may come from another machine.

    Imported runs always get a sandbox: their files are not trusted.
    """
    if spec.imported and not spec.hashes.data:
        raise UsageError(
            "The run was imported without grading. To grade it, import its log again with --grade EDITION."
        )
    task = _load_task_of_run(spec)
    require_writable_cache()
    sandbox = create_sandbox("auto" if spec.imported else spec.sandbox, spec.gpu)
    require_working(sandbox.name, spec.gpu)
    data = _find_run_data(task, spec, progress)
    runtime = ensure_runtime(task.config.runtime, progress)
    return Setup(
        task, spec.edition, data, runtime, sandbox, spec.known_levels, spec.record_access, spec.start
    )


def _load_task_of_run(spec: RunSpec) -> Task:
    """Load the task of a run; a folder may have been moved since, or be on another machine."""
    if "/" in spec.task and not Path(spec.task).is_dir():
        raise UsageError(
            f"The task folder {to_single_line(spec.task)} is not there."
            " Pass its new place with --task FOLDER."
        )
    return Task.load(spec.task)


def _find_run_data(task: Task, spec: RunSpec, progress: ProgressCallback) -> PreparedData:
    """Find the data that the run used. The default data is prepared again if it is missing."""
    try:
        return find_prepared_data(task, spec.edition, spec.hashes.data)
    except UsageError:
        data = prepare_data(task, spec.edition, progress)
        if data.hash != spec.hashes.data:
            raise
        return data


def find_changed_inputs(spec: RunSpec, setup: Setup) -> list[str]:
    """Name the inputs (task, grader, data, runtime) that changed since the run started."""
    current = setup.hashes.model_dump()
    return [name for name, recorded in spec.hashes.model_dump().items() if current[name] != recorded]


def choose_run_folder(task: str, agent: str) -> Path:
    """Choose an unused path in ./runs, for a run without --out."""
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    name = f"{task}-{Path(agent).stem}-{stamp}"
    path = Path("runs", name)
    number = 2
    while path.exists():
        path = path.with_name(f"{name}-{number}")
        number += 1
    return path
