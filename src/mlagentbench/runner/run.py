"""One run, from a task to a result: read this file first."""

import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from threading import BoundedSemaphore
from types import MappingProxyType

from mlagentbench.agents.base import Agent
from mlagentbench.environment.context import ActionContext, AskPerson
from mlagentbench.environment.environment import Environment, format_error
from mlagentbench.environment.model_calls import ModelCalls
from mlagentbench.errors import BenchError, Fault, RunOver
from mlagentbench.formatting import baseline_command
from mlagentbench.grading.grade import Grade, grade
from mlagentbench.grading.verdict import compute_verdict
from mlagentbench.models.base import Model
from mlagentbench.records import Ending, Result, Role, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup
from mlagentbench.sandbox.access_log.recording import AccessLog
from mlagentbench.sandbox.selection import choose_unprivileged_uid
from mlagentbench.system.stop_token import StopToken
from mlagentbench.workspace.files import Workspace

EnvironmentCallback = Callable[[Environment], None]
GRADING_SLOTS = BoundedSemaphore(
    len(os.sched_getaffinity(0))
)  # when many runs end together, they do not all compute


def execute_run(
    setup: Setup,
    agent: Agent,
    folder: RunFolder,
    on_open: EnvironmentCallback | None = None,
    person: AskPerson | None = None,
) -> Result:
    """Let `agent` work on the task until it is done, and grade what it leaves; the caller holds the folder's lock."""
    agent.prepare()
    env = open_environment(setup, folder, person, agent.models, agent.restarts_on_resume)
    if on_open:
        on_open(env)
    note, fault = "", None
    with closing(env):
        try:
            if not env.next_recorded_call:
                populate_workspace(env, setup)
            note = run_agent(agent, env, folder)
        except (Fault, OSError) as error:
            fault = error
        return finish_run(setup, env, folder, note, fault)


def finish_run(
    setup: Setup, env: Environment, folder: RunFolder, note: str = "", fault: Fault | OSError | None = None
) -> Result:
    """Grade what was left, and write the result; a fault of ours is no grade."""
    ending: Ending = env.ending or ("crashed" if note else "stopped")
    graded = Grade()
    try:
        if fault:
            raise fault
        with _grading_slot(env.stop_token):
            store, steps = env.context.store, env.steps
            graded = grade(setup.task, setup.data, store, len(steps), setup.sandbox, steps, env.stop_token)
    except (BenchError, OSError) as error:
        ending, note = "fault", f"{type(error).__name__}: {error}"
    finally:
        env.close()
    result = build_result(folder, env.steps, ending, graded)
    result = result.replace(note=note or result.note)
    folder.write_result(result)
    return result


def open_environment(
    setup: Setup,
    folder: RunFolder,
    person: AskPerson | None = None,
    models: Mapping[Role, Model] = MappingProxyType({}),
    match_calls_by_order: bool = False,
) -> Environment:
    """The environment in which the run begins, or goes on."""
    owner = None if setup.sandbox.name == "none" else choose_unprivileged_uid(folder.spec.id)
    stop_token = StopToken(folder.path)
    steps = folder.steps()
    model_calls = ModelCalls(
        models,
        folder.spec.limits,
        folder.model_calls,
        folder.calls(),
        stop_token,
        completed_steps=len(steps),
        match_by_order=match_calls_by_order,
    )
    context = ActionContext(
        workspace=Workspace(folder.path / "workspace", setup.task.config.read_only, owner),
        store=folder.open_store(setup.data),
        sandbox=setup.sandbox,
        runtime=setup.runtime,
        limits=folder.spec.limits,
        outputs_dir=folder.path / "outputs",
        model_calls=model_calls,
        seed=folder.spec.seed,
        ask_person=person,
        stop_token=stop_token,
        access_log=AccessLog(folder.path) if folder.spec.record_access else None,
    )
    return Environment(setup.task, folder.spec, context, folder.trace, steps)


def populate_workspace(env: Environment, setup: Setup) -> None:
    """The workspace as every agent finds it, and its first snapshot; a beginning that was cut off is begun again."""
    workspace, store = env.context.workspace, env.context.store
    store.restore(-1, workspace.root, workspace.owner)
    workspace.copy_in(setup.data.public)
    workspace.copy_in(setup.task.starter)
    store.snapshot(0)


def run_agent(agent: Agent, env: Environment, folder: RunFolder) -> str:
    """Run the agent; what it raises itself is its own failure, and what it left is still graded."""
    note = ""
    try:
        with suppress(RunOver):  # an agent that acts past its end is stopped, not blamed
            agent.run(env)
    except Fault:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an agent is anybody's code
        folder.write_file("crash.txt", traceback.format_exc())
        note = (
            f"the agent crashed: {type(error).__name__}: {format_error(error, inspect.getfile(type(agent)))}"
        )
    if env.fault:
        raise env.fault
    if env.next_recorded_call:
        raise Fault(
            f"the agent stopped after step {len(env.steps)}, where the record goes on{': ' if note else ''}{note};"
            f" resume with --from-step {len(env.steps)} to go on from there"
        )
    return note


@contextmanager
def _grading_slot(stop_token: StopToken) -> Iterator[None]:
    """Wait for one's turn to be graded."""
    while not GRADING_SLOTS.acquire(timeout=1):
        stop_token.raise_if_requested()
    try:
        yield
    finally:
        GRADING_SLOTS.release()


def build_result(folder: RunFolder, steps: list[Step], ending: Ending, graded: Grade) -> Result:
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
        tokens=sum(
            call.reply.input_tokens + call.reply.output_tokens for call in folder.calls() if call.reply
        ),
        dollars=sum(call.reply.dollars for call in folder.calls() if call.reply),
        seconds=round(steps[-1].clock if steps else 0.0, 3),
        grading_seconds=graded.seconds,
        hashes=spec.hashes,
        folder=str(folder.path),
    ).replace(**folder.compute_record_hashes(len(steps)))
    if spec.baseline is None:
        how = baseline_command(spec.task, spec.edition, spec.hashes.data, spec.kind)
        return result.replace(note=result.note or f"no baseline is known: {how}")
    if graded.score is None:
        return result
    return result.replace(**compute_verdict(graded.score, spec.baseline, spec.better).model_dump())
