"""From what a person typed to a run: new ones, resumed ones, and those that measure a baseline."""

import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from mlagentbench.errors import UsageError
from mlagentbench.records import Baseline, Limits, Result
from mlagentbench.runner import baselines
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import Watcher, run
from mlagentbench.runner.setup import Say, Setup, agent_class, changed, set_up_again


def start(
    setup: Setup,
    agent: str,
    out: Path | None = None,
    seed: int = 0,
    limits: dict[str, Any] | None = None,
    watch: Watcher | None = None,
) -> Result:
    """A new run in a new folder."""
    kind = agent_class(agent)
    file = Path(agent) if agent.endswith(".py") else None
    name = file.stem if file else agent
    person = _ask if kind.interactive else None
    asked = Limits.model_validate({**setup.task.config.limits.model_dump(), **(limits or {})})
    spec = setup.spec(name, seed, asked, interactive=kind.interactive)
    folder = RunFolder.create(out or _new_place(setup.task.name, name), spec, file)
    return run(setup, kind(seed), folder, watch, person)


def proceed(path: Path, from_step: int | None, say: Say, watch: Watcher | None = None) -> Result:
    """Go on with a run that was stopped, killed or failed through no fault of the agent."""
    folder = RunFolder(path)
    result = folder.result
    if result and result.ending != "fault" and from_step is None:
        raise UsageError(f"{path} is finished ({result.ending}); pass --from-step to go on from an earlier step")
    setup = set_up_again(folder.spec, say)
    if differing := changed(folder.spec, setup):
        raise UsageError(f"{path} cannot go on: its {' and '.join(differing)} changed since it began")
    kind = agent_class(str(folder.agent_file or folder.spec.agent))
    with folder.lock():
        folder.rewind(from_step)
    return run(setup, kind(folder.spec.seed), folder, watch, _ask if kind.interactive else None)


def measure_baseline(setup: Setup, count: int, say: Say) -> tuple[Baseline, list[float]]:
    """The starter's scores over `count` seeds."""
    scores: list[float] = []
    for score in baselines.measure(range(count), lambda seed, out: start(setup, "baseline", out, seed)):
        scores.append(score)
        say(f"run {len(scores)} of {count}: {score:.6g}")
    return baselines.keep(setup.task, setup.data, scores), scores


def _new_place(task: str, agent: str) -> Path:
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    place = Path("runs", f"{task}-{agent}-{stamp}")
    number = 2
    while place.exists():
        place = place.with_name(f"{task}-{agent}-{stamp}-{number}")
        number += 1
    return place


def _ask(request: str) -> str:
    """The person at the terminal answers an agent."""
    print("\n" + "-" * shutil.get_terminal_size().columns, f"\nThe agent asks: {request}", file=sys.stderr)
    return input("Your answer> ")
