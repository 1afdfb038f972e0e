"""From what a person typed to a run: new ones, resumed ones, and those that measure a baseline."""

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
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import EnvironmentCallback, execute_run
from mlagentbench.runner.setup import Setup, find_changed_inputs, restore_setup
from mlagentbench.system.cache import temporary_dir
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import describe_validation_error

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
    """A new run in a new folder; a worker that is given is not looked for by its name."""
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
    """A new run of which nothing has happened yet, for `proceed` to go on with; of the agent, no code is run."""
    allowed = _merge_limits(setup, limits)
    for role, model in models.items() if allowed.dollars is not None else ():
        if model.price is None:
            name = agent_spec.models_by_role.get(role, f"the {role} model")
            raise UsageError(f"--dollars needs a price, and none is known for {name}; pass --tokens instead")
    file = Path(agent_spec.agent) if agent_spec.agent.endswith(".py") else None
    spec = setup.create_run_spec(
        agent_spec.replace(agent=file.name) if file else agent_spec, seed, allowed, interactive
    )
    return RunFolder.create(out, spec, file)


def create_agent(agent_spec: AgentSpec, seed: int, sandbox: str) -> agents.Agent:
    """The agent with its models, ready to run in such a sandbox."""
    kind = agents.load_agent_class(agent_spec.agent)
    if kind.needs_model and not agent_spec.model:
        raise UsageError(
            f"the agent {agent_spec.agent} needs a model: pass --model NAME (mlagentbench list models)"
        )
    agent = agents.instantiate_agent(kind, seed, agent_spec.options, sandbox)
    agent.models = load_models(agent_spec)
    return agent


def load_models(agent_spec: AgentSpec) -> ModelsByRole:
    """The models that it names, by their roles."""
    loaded = {
        name: models.load_model(name) for name in agent_spec.models_by_role.values()
    }  # one that plays two roles is one
    return {role: loaded[name] for role, name in agent_spec.models_by_role.items()}


def _merge_limits(setup: Setup, requested: dict[str, Any]) -> Limits:
    try:
        return Limits.model_validate({**setup.task.config.limits.model_dump(), **requested})
    except ValidationError as error:
        raise UsageError(f"the limits of the run: {describe_validation_error(error)}") from error


def resume_run(
    path: Path,
    from_step: int | None,
    progress: ProgressCallback,
    on_open: EnvironmentCallback | None = None,
    setup: Setup | None = None,
    agent: agents.Agent | None = None,
) -> Result:
    """Go on with a run that was stopped, killed or failed through no fault of the agent."""
    folder = RunFolder(path)
    with folder.lock():
        setup = prepare_resume(folder, from_step, progress, setup)
        agent = agent or _recreate_agent(folder)
        folder.rewind(from_step, agent.restarts_on_resume)
        return execute_run(setup, agent, folder, on_open, prompt_user if agent.interactive else None)


def prepare_resume(
    folder: RunFolder, from_step: int | None, progress: ProgressCallback, setup: Setup | None = None
) -> Setup:
    """What a run needs to go on, if it may."""
    folder.refuse_imported("resumed")
    result = folder.result
    if result and result.ending != "fault" and from_step is None:
        raise UsageError(
            f"{folder.path} is finished ({result.ending}); pass --from-step to go on from an earlier step"
        )
    setup = setup or restore_setup(folder.spec, progress)
    if differing := find_changed_inputs(folder.spec, setup):
        raise UsageError(f"{folder.path} cannot go on: its {' and '.join(differing)} changed since it began")
    return setup


def _recreate_agent(folder: RunFolder) -> agents.Agent:
    """The agent that began; a run whose steps came from outside has none here."""
    spec = folder.spec
    if not folder.agent_file and spec.agent not in discovery.plugin_names("agents"):
        raise UsageError(
            f"the steps of {folder.path} came from outside ({spec.agent}); go on with it from there"
        )
    return create_agent(spec.replace(agent=str(folder.agent_file or spec.agent)), spec.seed, spec.sandbox)


def prompt_user(question: str) -> str:
    """The person at the terminal answers; closing the terminal is leaving, and the run can be resumed."""
    print(question, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise KeyboardInterrupt
    return line.rstrip("\n")


def measure_baseline(setup: Setup, count: int, progress: ProgressCallback) -> tuple[Baseline, list[float]]:
    """The untouched starter's scores over `count` seeds."""
    scores: list[float] = []
    for seed in range(count):
        with temporary_dir() as folder:
            result = start_run(setup, "baseline", folder / "run", seed)
        if result.ending == "fault":
            raise Fault(result.note)
        if result.score is None:
            raise TaskFault(f"the starter of {result.task} leaves no valid submission: {result.note}")
        scores.append(result.score)
        progress(f"run {len(scores)} of {count}: {result.score:.6g}")
    return baselines.store_baseline(setup.task, setup.data, scores), scores
