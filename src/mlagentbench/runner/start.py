"""Starts, resumes and creates runs, and measures baselines."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from mlagentbench import discovery
from mlagentbench.agents import base as agents
from mlagentbench.errors import Fault, TaskFault, UsageError
from mlagentbench.models import base as models
from mlagentbench.records import AgentSpec, Baseline, Limits, Result, Role
from mlagentbench.runner import baselines
from mlagentbench.runner.failed_scripts import describe_failed_script
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import EnvironmentCallback, execute_run
from mlagentbench.runner.setup import Setup, find_changed_inputs, restore_setup
from mlagentbench.system.cache import temporary_dir
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Task, describe_validation_error

ModelsByRole = Mapping[Role, models.Model]


def start_run(
    setup: Setup,
    agent_spec: AgentSpec | str,
    out: Path,
    seed: int = 0,
    limits: dict[str, Any] | None = None,
    on_open: EnvironmentCallback | None = None,
    agent: agents.Agent | None = None,
) -> Result:
    """Create a run folder and execute the run.

    Args:
        setup: The task, its data, the runtime and the sandbox.
        agent_spec: The agent with its options and models, or just the name or file of an agent.
        out: The new run folder. It must be empty or not exist.
        seed: The seed of the agent.
        limits: Fields of `Limits` that replace those of the task.
        on_open: Called once with the environment before the first step.
        agent: The agent itself; by default it is created from `agent_spec`.

    Raises:
        UsageError: Something in the arguments does not exist or does not fit.
        KeyboardInterrupt: The run was stopped and can be resumed.
    """
    agent_spec = AgentSpec(agent=agent_spec) if isinstance(agent_spec, str) else agent_spec
    agent = agent or create_agent(agent_spec, seed, setup.sandbox.name)
    agent.check_sandbox(setup.sandbox.name)
    folder = create_run(setup, agent_spec, out, seed, limits or {}, agent.interactive, agent.models)
    with folder.lock():
        return execute_run(setup, agent, folder, on_open, prompt_user if agent.interactive else None)


def create_run(
    setup: Setup,
    agent_spec: AgentSpec,
    out: Path,
    seed: int,
    limits: dict[str, Any],
    interactive: bool = False,
    models: ModelsByRole = MappingProxyType({}),
) -> RunFolder:
    """Create the folder of a new run without running any code of the agent; `resume_run` executes it."""
    allowed = merge_limits(setup.task, limits)
    for role, model in models.items() if allowed.dollars is not None else ():
        if model.price is None:
            name = agent_spec.models_by_role.get(role, f"the {role} model")
            raise UsageError(
                f"--dollars needs a price, but no price is known for {name}. Use --tokens instead."
            )
    file = Path(agent_spec.agent) if agent_spec.agent.endswith(".py") else None
    spec = setup.create_run_spec(
        agent_spec.replace(agent=file.name) if file else agent_spec, seed, allowed, interactive
    )
    return RunFolder.create(out, spec, file)


def create_agent(agent_spec: AgentSpec, seed: int, sandbox: str) -> agents.Agent:
    """Create the agent with its models, for a sandbox of this name."""
    agent_class = agents.load_agent_class(agent_spec.agent)
    if agent_class.needs_model and not agent_spec.model:
        raise UsageError(
            f"The agent {agent_spec.agent} needs a model. Pass --model NAME (see: mlagentbench list models)"
        )
    agent = agents.instantiate_agent(agent_class, seed, agent_spec.options, sandbox)
    if agent_class.needs_tools:
        require_tools(agent_spec.agent, agent_spec.model)
    agent.models = load_models(agent_spec)
    return agent


def require_tools(agent: str, model: str) -> None:
    """Raise UsageError if a model cannot call the tools that an agent offers; the model is not loaded."""
    if not models.find_model_class(model)[0].supports_tools:
        raise UsageError(
            f"The agent {agent} needs a model that calls tools, which {model.partition(':')[0]} cannot do."
            " Choose another model, or an agent that reads its actions from text, such as act."
        )


def load_models(agent_spec: AgentSpec) -> ModelsByRole:
    """Load the models of an agent. A model with two roles is loaded once."""
    loaded = {name: models.load_model(name) for name in agent_spec.models_by_role.values()}
    return {role: loaded[name] for role, name in agent_spec.models_by_role.items()}


def merge_limits(task: Task, requested: dict[str, Any]) -> Limits:
    """Return the limits of a task, with those that the user requested."""
    try:
        return Limits.model_validate({**task.config.limits.model_dump(), **requested})
    except ValidationError as error:
        raise UsageError(f"Limits of the run: {describe_validation_error(error)}") from error


def resume_run(
    path: Path,
    from_step: int | None,
    progress: ProgressCallback,
    on_open: EnvironmentCallback | None = None,
    setup: Setup | None = None,
    agent: agents.Agent | None = None,
) -> Result:
    """Resume a run that was stopped, was killed or ended with a fault.

    Args:
        path: The run folder.
        from_step: Drop all later steps and continue after this one; by default, continue after the last step.
        progress: Called with a line of text before each slow operation.
        on_open: Called once with the environment before the first step.
        setup: The setup, if the caller has it already.
        agent: The agent itself; by default it is created again from run.json.

    Raises:
        UsageError: The run cannot be resumed.
        KeyboardInterrupt: The run was stopped and can be resumed.
    """
    folder = RunFolder(path)
    with folder.lock():
        setup = prepare_resume(folder, from_step, progress, setup)
        agent = agent or _recreate_agent(folder)
        folder.rewind(from_step, agent.restarts_on_resume)
        return execute_run(setup, agent, folder, on_open, prompt_user if agent.interactive else None)


def prepare_resume(
    folder: RunFolder, from_step: int | None, progress: ProgressCallback, setup: Setup | None = None
) -> Setup:
    """Check that a run may be resumed, and prepare its setup."""
    folder.refuse_imported("resumed")
    result = folder.result
    if result and result.ending != "fault" and from_step is None:
        raise UsageError(
            f"{folder.path} is finished ({result.ending}). Pass --from-step to continue from an earlier step."
        )
    setup = setup or restore_setup(folder.spec, progress)
    if changed := find_changed_inputs(folder.spec, setup):
        raise UsageError(
            f"{folder.path} cannot be resumed: its {' and '.join(changed)} changed since it started"
        )
    _require_snapshot(folder, setup, from_step)
    return setup


def _require_snapshot(folder: RunFolder, setup: Setup, from_step: int | None) -> None:
    """Raise UsageError if files of the snapshot to resume from are missing, before anything is changed."""
    if not (folder.path / "snapshots").is_dir():
        return
    store = folder.open_store(setup.data, writable=False)
    step = len(folder.steps()) if from_step is None else from_step
    missing = store.find_missing_content(step)
    if not missing:
        return
    complete = [earlier for earlier in range(step) if not store.find_missing_content(earlier)]
    hint = f"Resume it with --from-step {complete[-1]}." if complete else "Start a new run."
    more = f" and {len(missing) - 1} more files" if len(missing) > 1 else ""
    raise UsageError(
        f"{folder.path} cannot be resumed after step {step}: the stored content of {missing[0]}{more} is"
        f" missing. {hint}"
    )


def _recreate_agent(folder: RunFolder) -> agents.Agent:
    """Create the agent of a run again; a session has no agent of its own."""
    spec = folder.spec
    if not folder.agent_file and spec.agent not in discovery.plugin_names("agents"):
        raise UsageError(
            f"The steps of {folder.path} were taken by another program ({spec.agent}). Resume it from there."
        )
    return create_agent(spec.replace(agent=str(folder.agent_file or spec.agent)), spec.seed, spec.sandbox)


def prompt_user(question: str) -> str:
    """Ask the person at the terminal. At the end of input the run is stopped and can be resumed."""
    print(question, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise KeyboardInterrupt
    return line.rstrip("\n")


def measure_baseline(setup: Setup, count: int, progress: ProgressCallback) -> tuple[Baseline, list[float]]:
    """Run the unchanged start of the setup with `count` seeds and store its scores."""
    scores: list[float] = []
    for seed in range(count):
        with temporary_dir() as folder:
            result = start_run(setup, "baseline", folder / "run", seed)
            reason, details = describe_failed_script(RunFolder(folder / "run").steps())
        if result.ending == "fault":
            raise Fault(result.note)
        if reason:
            raise TaskFault(f"The {setup.start} of {result.task} failed: {reason}", details)
        if result.score is None:
            raise TaskFault(f"The {setup.start} of {result.task} leaves no valid submission: {result.note}")
        scores.append(result.score)
        progress(f"run {len(scores)} of {count}: score {result.score:.6g}")
    return baselines.store_baseline(setup.task, setup.data, setup.start, scores), scores
