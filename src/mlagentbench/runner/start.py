"""From what a person typed to a run: new ones, resumed ones, and those that measure a baseline."""

import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mlagentbench.agents import base as agents
from mlagentbench.errors import Fault, TaskFault, UsageError
from mlagentbench.home import scratch
from mlagentbench.preparation.download import Say
from mlagentbench.records import Baseline, Limits, Result
from mlagentbench.runner import baselines
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import Watcher, run
from mlagentbench.runner.setup import Setup, changed, set_up_again
from mlagentbench.task import explain


def start(
    setup: Setup,
    agent: str,
    out: Path,
    seed: int = 0,
    limits: dict[str, Any] | None = None,
    watch: Watcher | None = None,
) -> Result:
    """A new run in a new folder."""
    kind = agents.load(agent)
    worker = agents.make(kind, seed)
    file = Path(agent) if agent.endswith(".py") else None
    spec = setup.spec(file.name if file else agent, seed, _limits(setup, limits or {}), kind.interactive)
    folder = RunFolder.create(out, spec, file)
    with folder.lock():
        return run(setup, worker, folder, watch, ask if kind.interactive else None)


def _limits(setup: Setup, asked: dict[str, Any]) -> Limits:
    try:
        return Limits.model_validate({**setup.task.config.limits.model_dump(), **asked})
    except ValidationError as error:
        raise UsageError(f"the limits of the run: {explain(error)}") from error


def proceed(path: Path, from_step: int | None, say: Say, watch: Watcher | None = None) -> Result:
    """Go on with a run that was stopped, killed or failed through no fault of the agent."""
    folder = RunFolder(path)
    with folder.lock():
        result = folder.result
        if result and result.ending != "fault" and from_step is None:
            raise UsageError(f"{path} is finished ({result.ending}); pass --from-step to go on from an earlier step")
        setup = set_up_again(folder.spec, say)
        if differing := changed(folder.spec, setup):
            raise UsageError(f"{path} cannot go on: its {' and '.join(differing)} changed since it began")
        kind = agents.load(str(folder.agent_file or folder.spec.agent))
        worker = agents.make(kind, folder.spec.seed)
        folder.rewind(from_step)
        return run(setup, worker, folder, watch, ask if kind.interactive else None)


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
