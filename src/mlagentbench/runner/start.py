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
from mlagentbench.home import scratch
from mlagentbench.models import base as models
from mlagentbench.preparation.download import Say
from mlagentbench.records import Baseline, Contestant, Limits, Result, Role
from mlagentbench.runner import baselines
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import Watcher, run
from mlagentbench.runner.setup import Setup, changed, set_up_again
from mlagentbench.task import explain

Models = Mapping[Role, models.Model]


def start(
    setup: Setup,
    who: Contestant | str,
    out: Path,
    seed: int = 0,
    limits: dict[str, Any] | None = None,
    watch: Watcher | None = None,
    worker: agents.Agent | None = None,
) -> Result:
    """A new run in a new folder; a worker that is given is not looked for by its name."""
    who = Contestant(agent=who) if isinstance(who, str) else who
    worker = worker or make(who, seed, setup.sandbox.name)
    worker.require(setup.sandbox.name)
    folder = begin(setup, who, out, seed, limits or {}, worker.interactive, worker.models)
    with folder.lock():
        return run(setup, worker, folder, watch, ask if worker.interactive else None)


def begin(
    setup: Setup,
    who: Contestant,
    out: Path,
    seed: int,
    limits: dict[str, Any],
    interactive: bool = False,
    models: Models = MappingProxyType({}),
) -> RunFolder:
    """A new run of which nothing has happened yet, for `proceed` to go on with; of the agent, no code is run."""
    allowed = _limits(setup, limits)
    for role, model in models.items() if allowed.dollars is not None else ():
        if model.price is None:
            name = who.roles.get(role, f"the {role} model")
            raise UsageError(f"--dollars needs a price, and none is known for {name}; pass --tokens instead")
    file = Path(who.agent) if who.agent.endswith(".py") else None
    spec = setup.spec(who.but(agent=file.name) if file else who, seed, allowed, interactive)
    return RunFolder.create(out, spec, file)


def make(who: Contestant, seed: int, sandbox: str) -> agents.Agent:
    """The agent with its models, ready to run in such a sandbox."""
    kind = agents.load(who.agent)
    if kind.needs_model and not who.model:
        raise UsageError(f"the agent {who.agent} needs a model: pass --model NAME (mlagentbench list models)")
    agent = agents.make(kind, seed, who.options, sandbox)
    agent.models = models_of(who)
    return agent


def models_of(who: Contestant) -> Models:
    """The models that it names, by their roles."""
    loaded = {name: models.load(name) for name in who.roles.values()}  # one that plays two roles is one
    return {role: loaded[name] for role, name in who.roles.items()}


def _limits(setup: Setup, asked: dict[str, Any]) -> Limits:
    try:
        return Limits.model_validate({**setup.task.config.limits.model_dump(), **asked})
    except ValidationError as error:
        raise UsageError(f"the limits of the run: {explain(error)}") from error


def proceed(
    path: Path,
    from_step: int | None,
    say: Say,
    watch: Watcher | None = None,
    setup: Setup | None = None,
    worker: agents.Agent | None = None,
) -> Result:
    """Go on with a run that was stopped, killed or failed through no fault of the agent."""
    folder = RunFolder(path)
    with folder.lock():
        setup = ready(folder, from_step, say, setup)
        worker = worker or _same_agent(folder)
        folder.rewind(from_step, worker.begins_again)
        return run(setup, worker, folder, watch, ask if worker.interactive else None)


def ready(folder: RunFolder, from_step: int | None, say: Say, setup: Setup | None = None) -> Setup:
    """What a run needs to go on, if it may."""
    folder.require_own("resumed")
    result = folder.result
    if result and result.ending != "fault" and from_step is None:
        raise UsageError(f"{folder.path} is finished ({result.ending}); pass --from-step to go on from an earlier step")
    setup = setup or set_up_again(folder.spec, say)
    if differing := changed(folder.spec, setup):
        raise UsageError(f"{folder.path} cannot go on: its {' and '.join(differing)} changed since it began")
    return setup


def _same_agent(folder: RunFolder) -> agents.Agent:
    """The agent that began; a run whose steps came from outside has none here."""
    spec = folder.spec
    if not folder.agent_file and spec.agent not in discovery.names("agents"):
        raise UsageError(f"the steps of {folder.path} came from outside ({spec.agent}); go on with it from there")
    return make(spec.but(agent=str(folder.agent_file or spec.agent)), spec.seed, spec.sandbox)


def ask(request: str) -> str:
    """The person at the terminal answers; closing the terminal is leaving, and the run can be resumed."""
    print(request, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise KeyboardInterrupt
    return line.rstrip("\n")


def measure_baseline(setup: Setup, count: int, say: Say) -> tuple[Baseline, list[float]]:
    """The untouched starter's scores over `count` seeds."""
    scores: list[float] = []
    for seed in range(count):
        with scratch() as folder:
            result = start(setup, "baseline", folder / "run", seed)
        if result.ending == "fault":
            raise Fault(result.note)
        if result.score is None:
            raise TaskFault(f"the starter of {result.task} leaves no valid submission: {result.note}")
        scores.append(result.score)
        say(f"run {len(scores)} of {count}: {result.score:.6g}")
    return baselines.keep(setup.task, setup.data, scores), scores
