"""One run, from a task to a result: read this file first."""

import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from threading import BoundedSemaphore
from types import MappingProxyType

from mlagentbench.actions.base import Person, World
from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment, told
from mlagentbench.errors import BenchError, Fault, RunOver
from mlagentbench.grading.grade import Grade, grade
from mlagentbench.grading.verdict import judge
from mlagentbench.ledger import Ledger
from mlagentbench.models.base import Model
from mlagentbench.records import Ending, Result, Role, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup
from mlagentbench.sandbox.access.listening import Book
from mlagentbench.sandbox.choose import unprivileged_user
from mlagentbench.stopping import Stopping
from mlagentbench.words import measuring
from mlagentbench.workspace.files import Workspace

Watcher = Callable[[Environment], None]
GRADERS = BoundedSemaphore(len(os.sched_getaffinity(0)))  # when many runs end together, they do not all compute


def run(
    setup: Setup, agent: Agent, folder: RunFolder, watch: Watcher | None = None, person: Person | None = None
) -> Result:
    """Let `agent` work on the task until it is done, and grade what it leaves; the caller holds the folder's lock."""
    agent.prepare()
    env = enter(setup, folder, person, agent.models)
    env.ledger.in_order = agent.begins_again
    if watch:
        watch(env)
    note, fault = "", None
    with closing(env):
        try:
            if not env.replaying:
                lay_out(env, setup)
            note = work(agent, env, folder)
        except (Fault, OSError) as error:
            fault = error
        return conclude(setup, env, folder, note, fault)


def conclude(
    setup: Setup, env: Environment, folder: RunFolder, note: str = "", fault: Fault | OSError | None = None
) -> Result:
    """Grade what was left, and write the result; a fault of ours is no grade."""
    ending: Ending = env.ending or ("crashed" if note else "stopped")
    graded = Grade()
    try:
        if fault:
            raise fault
        with _turn(env.stopping):
            store, steps = env.world.store, env.steps
            graded = grade(setup.task, setup.data, store, len(steps), setup.sandbox, steps, env.stopping)
    except (BenchError, OSError) as error:
        ending, note = "fault", f"{type(error).__name__}: {error}"
    finally:
        env.close()
    result = account(folder, env.steps, ending, graded)
    result = result.but(note=note or result.note)
    folder.finish(result)
    return result


def enter(
    setup: Setup, folder: RunFolder, person: Person | None = None, models: Mapping[Role, Model] = MappingProxyType({})
) -> Environment:
    """The environment in which the run begins, or goes on."""
    owner = None if setup.sandbox.name == "none" else unprivileged_user(folder.spec.id)
    stopping = Stopping(folder.path)
    world = World(
        workspace=Workspace(folder.path / "workspace", setup.task.config.read_only, owner),
        store=folder.store(setup.data),
        sandbox=setup.sandbox,
        runtime=setup.runtime,
        limits=folder.spec.limits,
        outputs=folder.path / "outputs",
        ledger=Ledger(models, folder.spec.limits, folder.model_calls, folder.calls(), stopping),
        seed=folder.spec.seed,
        person=person,
        stopping=stopping,
        book=Book(folder.path) if folder.spec.ledger else None,
    )
    return Environment(setup.task, folder.spec, world, folder.trace, folder.steps())


def lay_out(env: Environment, setup: Setup) -> None:
    """The workspace as every agent finds it, and its first snapshot; a beginning that was cut off is begun again."""
    workspace, store = env.world.workspace, env.world.store
    store.restore(-1, workspace.root, workspace.owner)
    workspace.lay(setup.data.public)
    workspace.lay(setup.task.starter)
    store.snapshot(0)


def work(agent: Agent, env: Environment, folder: RunFolder) -> str:
    """Run the agent; what it raises itself is its own failure, and what it left is still graded."""
    note = ""
    try:
        with suppress(RunOver):  # an agent that acts past its end is stopped, not blamed
            agent.run(env)
    except Fault:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an agent is anybody's code
        folder.keep("crash.txt", traceback.format_exc())
        note = f"the agent crashed: {type(error).__name__}: {told(error, inspect.getfile(type(agent)))}"
    if env.fault:
        raise env.fault
    if env.replaying:
        raise Fault(
            f"the agent stopped after step {len(env.steps)}, where the record goes on{': ' if note else ''}{note};"
            f" resume with --from-step {len(env.steps)} to go on from there"
        )
    return note


@contextmanager
def _turn(stopping: Stopping) -> Iterator[None]:
    """Wait for one's turn to be graded."""
    while not GRADERS.acquire(timeout=1):
        stopping.heed()
    try:
        yield
    finally:
        GRADERS.release()


def account(folder: RunFolder, steps: list[Step], ending: Ending, graded: Grade) -> Result:
    """All that follows from the record and the grade; `verify` computes it again."""
    spec = folder.spec
    result = Result(
        task=spec.task.rpartition("/")[2],
        edition=spec.edition,
        agent=spec.agent,
        model=spec.model,
        seed=spec.seed,
        score=graded.score,
        baseline=spec.baseline.mean if spec.baseline else None,
        valid=graded.score is not None,
        ending=ending,
        note=graded.invalid,
        violations=graded.violations,
        unsandboxed=spec.sandbox == "none",
        steps=len(steps),
        tokens=sum(call.reply.input_tokens + call.reply.output_tokens for call in folder.calls() if call.reply),
        dollars=sum(call.reply.dollars for call in folder.calls() if call.reply),
        seconds=round(steps[-1].clock if steps else 0.0, 3),
        grading_seconds=graded.seconds,
        hashes=spec.hashes,
        folder=str(folder.path),
    ).but(**folder.claims(len(steps)))
    if spec.baseline is None:
        how = measuring(spec.task, spec.edition, spec.hashes.data, spec.kind)
        return result.but(note=result.note or f"no baseline is known: {how}")
    if graded.score is None:
        return result
    return result.but(**judge(graded.score, spec.baseline, spec.better).model_dump())
