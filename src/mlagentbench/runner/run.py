"""One run, from a task to a result: read this file first."""

import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment, Person
from mlagentbench.errors import Fault, RunOver, UsageError
from mlagentbench.grading.grade import Grade, grade
from mlagentbench.grading.verdict import judge
from mlagentbench.records import Ending, Result
from mlagentbench.runner.baselines import baseline_of
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup

Watcher = Callable[[Environment], None]


def run(
    setup: Setup, agent: Agent, folder: RunFolder, watch: Watcher | None = None, person: Person | None = None
) -> Result:
    """Let `agent` work on the task until it is done, and grade what it leaves."""
    with folder.lock():
        store = folder.store(setup.data)
        recorded = folder.steps()
        env = Environment(setup.task, folder.spec, folder.path, store, setup.sandbox, setup.runtime, recorded, person)
        if watch:
            watch(env)
        note = ""
        try:
            begin(env, setup, bool(recorded))
            note = work(agent, env)
            ending: Ending = env.ending or ("crashed" if note else "stopped")
            graded = grade(setup.task, setup.data, store, len(env.steps), setup.sandbox.name)
        except Fault as fault:
            ending, graded, note = "fault", Grade(), f"{type(fault).__name__}: {fault}"
        finally:
            env.close()
        result = verdict(setup, folder, env, ending, graded, note)
        folder.finish(result)
    return result


def begin(env: Environment, setup: Setup, resumed: bool) -> None:
    """Lay out the workspace and take its first snapshot, unless a record says how it was."""
    if resumed:
        return
    env.world.workspace.root.mkdir(exist_ok=True)
    env.world.store.restore(-1, env.world.workspace.root, env.world.workspace.owner)
    env.world.workspace.lay(setup.data.public)
    env.world.workspace.lay(setup.task.starter)
    env.world.store.snapshot(0)


def work(agent: Agent, env: Environment) -> str:
    """Run the agent; what it raises itself is its own failure, and what it left is still graded."""
    try:
        with suppress(RunOver):  # an agent that acts past its end is stopped, not blamed
            agent.run(env)
    except (Fault, UsageError):
        raise
    except Exception as error:  # noqa: BLE001 - an agent is anybody's code
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"the agent crashed: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    if env.replaying:
        raise Fault(f"the agent stopped after step {len(env.steps)}, where the record goes on")
    return ""


def verdict(setup: Setup, folder: RunFolder, env: Environment, ending: Ending, graded: Grade, note: str) -> Result:
    """Everything that is known of the run, in one record."""
    spec, steps = folder.spec, env.steps
    result = Result(
        task=setup.task.name,
        edition=spec.edition,
        agent=spec.agent,
        model=spec.model,
        seed=spec.seed,
        score=graded.score,
        valid=graded.score is not None,
        ending=ending,
        note=note or graded.invalid,
        violations=graded.violations,
        unsandboxed=spec.sandbox == "none",
        steps=len(steps),
        seconds=round(steps[-1].clock if steps else 0.0, 3),
        tokens=env.tokens,
        dollars=env.dollars,
        grading_seconds=graded.seconds,
        hashes=spec.hashes,
        folder=str(folder.path),
    ).but(**folder.claims(len(steps)))
    baseline = baseline_of(setup.task, spec.edition, setup.data)
    if baseline is None:
        return result.but(note=result.note or f"no baseline is known: mlagentbench baseline {spec.task}")
    if graded.score is None:
        return result.but(baseline=baseline.mean)
    return result.but(**judge(graded.score, baseline, setup.task.config.better).model_dump())
