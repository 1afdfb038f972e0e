"""Runs one agent on one task and grades its work. Start reading the project here.

`execute_run` is a whole run:

1. `open_environment` connects the run folder, the workspace, the sandbox and the models.
2. `populate_workspace` copies the task's data and starter code into the workspace.
3. `run_agent` calls `Agent.run(env)`, which takes steps until it returns or a limit is reached.
4. `finish_run` grades the last snapshot and writes result.json.

A resumed run goes through the same function. The agent starts again, and the recorded steps and model replies
answer it until the record ends.
"""

import inspect
import logging
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
from mlagentbench.grading.grade import grade
from mlagentbench.grading.run_grader import Grade
from mlagentbench.grading.verdict import judge_score
from mlagentbench.models.base import Model
from mlagentbench.records import Ending, Result, Role, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup
from mlagentbench.sandbox.access_log.recording import AccessLog
from mlagentbench.sandbox.selection import choose_unprivileged_uid
from mlagentbench.system.stop_token import StopToken
from mlagentbench.workspace.files import Workspace

log = logging.getLogger(__name__)

EnvironmentCallback = Callable[[Environment], None]

# Many runs of a batch may end at the same time. At most one grader per core runs at once.
GRADING_SLOTS = BoundedSemaphore(len(os.sched_getaffinity(0)))


def execute_run(
    setup: Setup,
    agent: Agent,
    folder: RunFolder,
    on_open: EnvironmentCallback | None = None,
    ask_person: AskPerson | None = None,
) -> Result:
    """Run `agent` on the task, grade the final workspace and write result.json.

    Args:
        setup: The task, its data, the runtime and the sandbox.
        agent: The agent, with its models.
        folder: A new run folder, or one to resume. The caller holds its lock.
        on_open: Called once with the environment before the first step, for example to show progress.
        ask_person: Answers the questions of an interactive agent.

    Returns:
        The result. A crash of the agent has the ending "crashed" and is graded. A failure of the harness, the
        provider or the task has the ending "fault" and no score.

    Raises:
        KeyboardInterrupt: The run was stopped. No result is written; the run can be resumed.
    """
    agent.prepare()
    if agent.program:
        folder.record_program(agent.program, agent.program_lock)
    env = open_environment(setup, folder, ask_person, agent.models, agent.restarts_on_resume)
    if on_open:
        on_open(env)
    crash_note, fault = "", None
    with closing(env):
        try:
            if not env.next_recorded_call:
                populate_workspace(env, setup)
            crash_note = run_agent(agent, env, folder)
        except (Fault, OSError) as error:
            fault = error
        return finish_run(setup, env, folder, crash_note, fault)


def open_environment(
    setup: Setup,
    folder: RunFolder,
    ask_person: AskPerson | None = None,
    models: Mapping[Role, Model] = MappingProxyType({}),
    match_calls_by_order: bool = False,
) -> Environment:
    """Create the environment of a run. Recorded steps of `folder` answer the agent until they run out.

    Args:
        setup: The task, its data, the runtime and the sandbox.
        folder: The run folder.
        ask_person: Answers the questions of an interactive agent.
        models: The models of the agent, by role.
        match_calls_by_order: Match recorded model calls by their order only, not by their prompts.

    Returns:
        The environment. The caller closes it, which terminates the processes of the run.
    """
    owner = choose_unprivileged_uid(folder.spec.id) if setup.sandbox.uses_separate_user else None
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
    store = folder.open_store(setup.data)
    store.tracked_paths = setup.task.config.script_outputs
    context = ActionContext(
        workspace=Workspace(folder.path / "workspace", setup.task.config.read_only, owner),
        store=store,
        sandbox=setup.sandbox,
        runtime=setup.runtime,
        limits=folder.spec.limits,
        outputs_dir=folder.path / "outputs",
        model_calls=model_calls,
        seed=folder.spec.seed,
        ask_person=ask_person,
        stop_token=stop_token,
        access_log=AccessLog(folder.path) if folder.spec.record_access else None,
        grants_model=setup.task.config.grants.model,
    )
    return Environment(setup.task, folder.spec, context, folder.trace, steps)


def populate_workspace(env: Environment, setup: Setup) -> None:
    """Fill the workspace with the public data and the code of the start, and take snapshot 0.

    The workspace is emptied first: an earlier attempt may have been killed before its first step.
    """
    workspace, store = env.context.workspace, env.context.store
    store.restore(-1, workspace.root, workspace.owner)
    workspace.copy_in(setup.data.public)
    workspace.copy_in(setup.task.starter)
    if setup.start != "starter":
        workspace.copy_in(setup.task.solution(setup.start))
    store.snapshot(0)


def run_agent(agent: Agent, env: Environment, folder: RunFolder) -> str:
    """Call the agent until it returns.

    Args:
        agent: The agent.
        env: The environment that it works in.
        folder: The run folder, which gets the traceback of a crash.

    Returns:
        How the agent crashed, or an empty string. Its work is graded even if it crashed.

    Raises:
        Fault: The harness failed, or a resumed agent stopped before the end of its record.
    """
    crash_note = ""
    try:
        # An agent that keeps calling step() after the end of the run is stopped; that is not a crash.
        with suppress(RunOver):
            agent.run(env)
    except Fault:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an agent is arbitrary code
        folder.write_file("crash.txt", traceback.format_exc())
        message = format_error(error, inspect.getfile(type(agent)))
        crash_note = f"The agent crashed: {type(error).__name__}: {message}"
    if env.fault:
        raise env.fault
    if env.next_recorded_call:
        last = len(env.steps)
        details = f" {crash_note}." if crash_note else ""
        raise Fault(
            f"Replay diverged: the agent stopped after step {last}, but the record has more steps.{details}"
            f" To continue from there, resume with --from-step {last}."
        )
    return crash_note


def finish_run(
    setup: Setup,
    env: Environment,
    folder: RunFolder,
    crash_note: str = "",
    fault: Fault | OSError | None = None,
) -> Result:
    """Grade the last snapshot, write result.json and close the environment.

    Args:
        setup: The task, its data, the runtime and the sandbox.
        env: The environment after the last step.
        folder: Where to write the result.
        crash_note: How the agent crashed, if it did.
        fault: What failed in the harness, if anything did. Such a run is not graded.

    Returns:
        The result. If grading fails, its ending is "fault".
    """
    ending: Ending = env.ending or ("crashed" if crash_note else "stopped")
    note, grading = crash_note, Grade()
    try:
        if fault:
            raise fault
        with _grading_slot(env.stop_token):
            store, steps = env.context.store, env.steps
            grading = grade(setup.task, setup.data, store, len(steps), setup.sandbox, steps, env.stop_token)
    except (BenchError, OSError) as error:
        ending, note = "fault", f"{type(error).__name__}: {error}"
    finally:
        env.close()
    result = build_result(folder, env.steps, ending, grading)
    result = result.replace(note=note or result.note)
    folder.write_result(result)
    log.info(
        "run %s ended: %s, score %s, graded in %.1f s",
        folder.spec.id,
        ending,
        result.score,
        result.grading_seconds,
    )
    return result


@contextmanager
def _grading_slot(stop_token: StopToken) -> Iterator[None]:
    """Wait until a grader may start."""
    while not GRADING_SLOTS.acquire(timeout=1):
        stop_token.raise_if_requested()
    try:
        yield
    finally:
        GRADING_SLOTS.release()


def build_result(folder: RunFolder, steps: list[Step], ending: Ending, grading: Grade) -> Result:
    """Compute every field of result.json from the recorded steps and the grade.

    `verify` calls this again and compares, so the result must follow from the record alone.

    Args:
        folder: The run folder.
        steps: Its steps.
        ending: How the run ended.
        grading: What the grader returned; empty after a fault.

    Returns:
        The result, with a verdict if there is a score and the baseline is known.
    """
    spec = folder.spec
    replies = [call.reply for call in folder.calls() if call.reply]
    result = Result(
        task=spec.task.rpartition("/")[2],
        edition=spec.edition,
        agent=spec.agent,
        model=spec.model,
        seed=spec.seed,
        start=spec.start,
        score=grading.score,
        baseline=spec.baseline.mean if spec.baseline else None,
        valid=grading.score is not None,
        ending=ending,
        note=grading.invalid,
        violations=grading.violations,
        unsandboxed=spec.sandbox == "none",
        steps=len(steps),
        tokens=sum(reply.input_tokens + reply.output_tokens for reply in replies),
        dollars=sum(reply.dollars for reply in replies),
        seconds=round(steps[-1].clock if steps else 0.0, 3),
        grading_seconds=grading.seconds,
        hashes=spec.hashes,
        folder=folder.path,
    ).replace(**folder.compute_record_hashes(len(steps)))
    if spec.baseline is None:
        command = baseline_command(spec.task, spec.edition, spec.hashes.data, spec.kind, spec.start)
        return result.replace(note=result.note or f"No baseline is known. Measure it with: {command}")
    verdict = judge_score(grading.score, spec) if grading.score is not None else None
    return result.replace(**verdict.model_dump()) if verdict else result
