"""The environment of an agent: actions, budget and steps. Every step is on disk before the next starts."""

import difflib
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from mlagentbench.actions.base import Action, load_actions
from mlagentbench.actions.python_repl import python_repl, rerun_command
from mlagentbench.environment.context import MAX_REPLY_TOKENS, ActionContext
from mlagentbench.environment.model_calls import CallContext
from mlagentbench.environment.problem_statement import describe_run
from mlagentbench.errors import ActionError, Fault, PromptRejected, PromptTooLong, RunOver, UsageError
from mlagentbench.records import BYTES_PER_GB, Call, Ending, Message, Prompt, Reply, Role, RunSpec, Step, Tool
from mlagentbench.system.journal import Journal, escape_invalid_utf8
from mlagentbench.system.progress import ProgressCallback, ignore_progress
from mlagentbench.task import Task
from mlagentbench.workspace.paths import format_path
from mlagentbench.workspace.store import WorkspaceTooLarge

log = logging.getLogger(__name__)

MAX_CALLS_AFTER_END = 100  # then an agent that ignores RunOver is stopped by SystemExit
RESUMED_AFTER_STEP = "A background process resumed after its step and was terminated"


class Environment:
    """One attempt at one task.

    An agent calls `step` to act and `ask` to query a model, until `done`. The environment records every step
    and every model call, takes a snapshot of the workspace after each step, and enforces the limits. In a
    resumed run, recorded steps and replies answer the agent until they run out.

    Attributes:
        task: The task.
        spec: What was asked for: limits, seed, models.
        actions: The available actions, by name.
        steps: The steps so far.
        fault: Set when the harness failed; the run is then void.
        on_step: Called after each step.
        on_notice: Called with one line of text that a person should see while the run goes on.
    """

    def __init__(
        self,
        task: Task,
        spec: RunSpec,
        context: ActionContext,
        trace: Journal,
        recorded: tuple[Step, ...] = (),
    ) -> None:
        """Open the environment of a run.

        Args:
            task: The task to work on.
            spec: What was asked for.
            context: What the actions work on.
            trace: Where steps are recorded.
            recorded: The steps of a resumed run, which are replayed first.
        """
        self.task, self.spec, self.context = task, spec, context
        self._all_actions: dict[str, Action] = load_actions(
            spec.interactive, bool(context.model_calls.models), spec.limits
        )
        self.actions = {name: action for name, action in self._all_actions.items() if not action.is_internal}
        self.steps = context.steps
        self.model_calls = context.model_calls
        self.stop_token = context.stop_token
        self.current_call: Call | None = None
        self.fault: Fault | None = None
        self.on_step: Callable[[Step], None] = lambda step: None
        self.on_notice: ProgressCallback = ignore_progress
        self._trace = trace
        self._recorded = list(recorded[::-1])
        self._clock = 0.0
        self._live_since: float | None = time.monotonic()  # None: the clock waits for the next step
        self._step_started = 0.0
        self._submitted = False
        self._calls_after_end = 0

    @property
    def problem_statement(self) -> str:
        """What the agent reads first: the task's description, and the resources and limits of this run."""
        return describe_run(self.task, self.spec, bool(self.model_calls.models))

    @property
    def next_recorded_call(self) -> Call | None:
        """The next recorded call, while the run is being replayed."""
        return self._recorded[-1].call if self._recorded else None

    @property
    def elapsed_seconds(self) -> float:
        """Seconds of the run so far; a resumed run continues where it stopped."""
        if self._recorded or self._live_since is None:
            return self._clock
        return self._clock + time.monotonic() - self._live_since

    @property
    def current_step_seconds(self) -> float:
        """Seconds since the current step started; 0 between steps."""
        return self.elapsed_seconds - self._step_started if self.current_call else 0.0

    @property
    def seconds_left(self) -> float:
        """Seconds until the run's time limit."""
        return max(self.spec.limits.hours * 3600 - self.elapsed_seconds, 0.0)

    @property
    def ending(self) -> Ending | None:
        """Why the run is over, or None while it is not."""
        limits = self.spec.limits
        if self._submitted:
            return "submitted"
        if len(self.steps) >= limits.steps:
            return "steps"
        if self.model_calls.exhausted_budget:
            return self.model_calls.exhausted_budget
        return "time" if self.seconds_left <= 0 else None

    @property
    def done(self) -> bool:
        """Whether the run is over."""
        return self.ending is not None

    def ask(
        self,
        messages: Sequence[Message],
        role: Role = "main",
        stop: Sequence[str] = (),
        tools: Sequence[Tool] = (),
        grammar: str = "",
        max_tokens: int = MAX_REPLY_TOKENS,
    ) -> Reply:
        """Ask a model and return its reply.

        Args:
            messages: The conversation.
            role: Which of the run's models to ask; falls back to the main one.
            stop: Sequences that end the reply.
            tools: Tools that the model may call.
            grammar: A GBNF grammar for models that support one.
            max_tokens: The longest reply.

        Returns:
            The reply with its tool calls, token counts and cost.

        Raises:
            PromptTooLong: The model does not accept a prompt of this length; ask again with less.
            ActionError: The model rejects this prompt, and has answered others.
            RunOver: The run is over, or the call would exceed its budget.
            UsageError: The run has no model.
            Fault: The provider or the harness failed; the run is void.
        """
        prompt = Prompt(
            messages=tuple(messages),
            stop=tuple(stop),
            tools=tuple(tools),
            grammar=grammar,
            max_tokens=max_tokens,
        )
        try:
            return self.ask_prompt(prompt, role)
        except PromptRejected as error:
            if role in self.model_calls.answered_roles:  # what the agent has written or read is rejected
                raise ActionError(str(error)) from error
            raise self._record_fault(error) from error

    def ask_prompt(self, prompt: Prompt, role: Role = "main") -> Reply:
        """Ask a model with everything that a prompt can hold.

        Args:
            prompt: The messages, tools and settings.
            role: Which of the run's models to ask; falls back to the main one.

        Returns:
            The reply.

        Raises:
            PromptRejected: The model does not support something in the prompt; ask again without it.
            PromptTooLong: As for `ask`.
            RunOver: As for `ask`.
            UsageError: As for `ask`.
            Fault: As for `ask`.
        """
        self.stop_token.raise_if_requested()
        if self.fault or self.done:
            raise self.fault or RunOver(f"The run is over: {self.ending}")
        try:
            reply = self.model_calls.ask(prompt, CallContext(len(self.steps) + 1), role)
        except (PromptTooLong, PromptRejected, RunOver, UsageError):
            raise
        except Exception as error:
            raise self._record_fault(error) from error
        replayed_seconds = self.model_calls.take_replayed_seconds()
        if not self._recorded:
            self._clock += replayed_seconds
        return reply

    def step(self, call: Call) -> str:
        """Run one action.

        Args:
            call: The action, its arguments, and optionally the agent's reason.

        Returns:
            The observation. An action that fails is an observation too, beginning with "Error:".

        Raises:
            RunOver: The run is over.
            Fault: The harness failed; the run is void.
        """
        self.stop_token.raise_if_requested()
        if self.fault or self.done:
            self._calls_after_end += 1
            if self._calls_after_end > MAX_CALLS_AFTER_END:
                # Not an Exception, so an agent that catches everything still stops.
                raise SystemExit("The agent kept acting after the end of the run.")
            raise self.fault or RunOver(f"The run is over: {self.ending}")
        call, problem = _normalize_call(call)
        try:
            step = self._replay_step(call) if self._recorded else self._run_step(call, problem)
        except RunOver:  # an action asked a model for more than the budget allows
            raise
        except Exception as error:
            raise self._record_fault(error) from error
        finally:
            self.current_call = self.context.output = None
        self.on_step(step)
        return step.observation

    def start_clock_at_next_step(self) -> None:
        """Do not count the time until the next step, for a caller who may wait long before it."""
        self._live_since = None

    def close(self) -> None:
        """Terminate every process of the run."""
        self.context.close()

    def _record_fault(self, error: Exception) -> Fault:
        """Remember a failure of the harness: it voids the run even if the agent catches the exception."""
        self.fault = (
            error if isinstance(error, Fault) else Fault(f"{type(error).__name__}: {format_error(error)}")
        )
        return self.fault

    def _run_step(self, call: Call, problem: str) -> Step:
        started, number = self.elapsed_seconds, len(self.steps) + 1
        if self._live_since is None:
            self._live_since = time.monotonic()
        notes = self._undo_changes_between_steps(number)
        self.current_call, self.context.execution, self._step_started = call, None, started
        self.context.step_time_limit_s = min(self.spec.limits.script_minutes * 60, self.seconds_left)
        action = self._all_actions.get(call.action)
        try:
            if problem:
                raise ActionError(problem)
            observation, failed = self._run_action(action, call), False
        except ActionError as error:
            observation, failed = f"Error: {error}", True
        if self.context.access_log:
            self.context.access_log.write_step(number)
        ends_run = bool(action and action.ends_run and not failed)
        if ends_run:
            self.context.close()  # nothing may change the workspace that is graded
        if action and action.changes_workspace:
            notes += self._snapshot_workspace(number)
        ended = self.elapsed_seconds
        step = Step(
            number=number,
            call=call,
            observation=escape_invalid_utf8("\n".join([observation, *notes])),
            failed=failed,
            seconds=round(ended - started, 4),
            clock=round(ended, 4),
            tokens=self.model_calls.tokens,
            dollars=self.model_calls.dollars,
            execution=self.context.execution,
            notes=notes,
        )
        self._trace.append(step.model_dump_json())
        log.info("step %d: %s (%.2f s)%s", number, call.action, step.seconds, ", failed" if failed else "")
        self._submitted = ends_run
        self.steps.append(step)
        return step

    def _undo_changes_between_steps(self, number: int) -> tuple[str, ...]:
        """Undo what a REPL process did to files after its step."""
        if not self._terminate_resumed_processes():
            return ()
        self.context.store.restore(number - 1, self.context.workspace.root, self.context.workspace.owner)
        return (f"[{RESUMED_AFTER_STEP}; the workspace was restored to the end of that step]",)

    def _terminate_resumed_processes(self, include_program: bool = False) -> bool:
        """Terminate a REPL that ran between steps; an external program only if it caused a failure."""
        context = self.context
        candidates = (context.repl, context.external_program if include_program else None)
        resumed = [process for process in candidates if process and not process.stayed_paused]
        for process in resumed:
            process.close()
        if context.repl in resumed:
            context.repl = None
        if context.external_program in resumed:
            context.external_program = None
        return bool(resumed)

    def _run_action(self, action: Action | None, call: Call) -> str:
        if action is None:
            similar = difflib.get_close_matches(call.action, self.actions, 1)
            hint = f" Did you mean {similar[0]}?" if similar else ""
            raise ActionError(f"No such action: {call.action!r}.{hint} Available: {', '.join(self.actions)}")
        try:
            return action(self.context, call.args)
        except Fault as fault:
            # Files that change while we read them are not the harness's fault.
            if not self._terminate_resumed_processes(include_program=True):
                raise
            raise ActionError(f"{RESUMED_AFTER_STEP}: {fault}") from fault

    def _snapshot_workspace(self, number: int) -> tuple[str, ...]:
        """Take the step's snapshot; again if a process changed files meanwhile, after terminating it."""
        try:
            notes = self._snapshot_within_limits(number)
            if not self._terminate_resumed_processes():
                return notes
        except Fault:
            if not self._terminate_resumed_processes(include_program=True):
                raise
        return (f"[{RESUMED_AFTER_STEP}]", *self._snapshot_within_limits(number))

    def _snapshot_within_limits(self, number: int) -> tuple[str, ...]:
        """Take the step's snapshot, undoing changes that are not allowed; returns notes for the agent."""
        store, workspace, limits = self.context.store, self.context.workspace, self.spec.limits
        execution = self.context.execution
        workspace.unlock()
        try:
            if execution and execution.limit == "disk":
                raise WorkspaceTooLarge("Disk limit exceeded")
            max_bytes, max_history_bytes = (
                int(gb * BYTES_PER_GB) for gb in (limits.disk_gb, limits.history_gb)
            )
            change = store.snapshot(number, max_bytes, limits.files, max_history_bytes)
        except WorkspaceTooLarge as error:
            store.restore(number - 1, workspace.root, workspace.owner)
            return (f"[{error}; the workspace was restored to its state before this step]",)
        changed = [path for path in change.modified + change.removed if workspace.is_read_only(path)]
        if not changed:
            return ()
        originals = {path: entry for path, entry in store.state(0).items() if workspace.is_read_only(path)}
        store.restore(number, workspace.root, workspace.owner, overrides=originals)
        store.snapshot(number)
        names = ", ".join(map(format_path, changed[:5]))
        return (f"[Read-only files were changed and have been restored: {names}]",)

    def _replay_step(self, call: Call) -> Step:
        step = self._recorded[-1]
        if (call.action, call.args) != (step.call.action, step.call.args):
            got = call.action if call.action != step.call.action else f"{call.action} with other arguments"
            raise Fault(
                f"Replay diverged at step {step.number}: recorded {step.call.action}, got {got}."
                f" Resume with --from-step {step.number - 1} to continue from there."
            )
        self._recorded.pop()
        self.model_calls.skip_recorded_calls(step.number)
        self.steps.append(step)
        self._clock = step.clock
        self.model_calls.restore_usage(step.tokens, step.dollars)
        action = self._all_actions.get(call.action)
        self._submitted = bool(action and action.ends_run and not step.failed)
        if action and action.reruns_on_resume and not step.failed:
            action(self.context, step.call.args)
        if not self._recorded:
            self._finish_replay()
        return step

    def _finish_replay(self) -> None:
        """Restore the workspace, the REPL and the clock to where the record ends."""
        store, workspace = self.context.store, self.context.workspace
        repl_steps: list[Step] = []
        for step in self.steps:
            if step.call.action == python_repl.name and not step.failed:
                # A REPL step has an execution only if it ended the interpreter.
                repl_steps = [] if step.execution else [*repl_steps, step]
        for step in [] if self._submitted else repl_steps:
            store.restore(step.number - 1, workspace.root, workspace.owner)
            time_limit_s = self.spec.limits.script_minutes * 60
            rerun_command(self.context, str(step.call.args["command"]), time_limit_s, step.number)
        store.restore(len(self.steps), workspace.root, workspace.owner)
        if self.context.access_log:
            self.context.access_log.discard_pending()
        self._live_since = time.monotonic()


def _normalize_call(call: Call) -> tuple[Call, str]:
    """Return the call as the trace records it, and what is wrong if it cannot be written as JSON."""
    thought = escape_invalid_utf8(call.thought)
    call = call if thought == call.thought else call.replace(thought=thought)
    try:
        return Call.model_validate_json(call.model_dump_json()), ""
    except (ValueError, TypeError, RecursionError) as error:
        problem = f"The call cannot be written as JSON: {escape_invalid_utf8(str(error))[:300]}"
        return call.replace(action=escape_invalid_utf8(call.action), args={}), problem


def format_error(error: BaseException, file: str = "") -> str:
    """Format an unexpected error with the line that raised it; in `file`, if the traceback has one there."""
    frames = traceback.extract_tb(error.__traceback__)
    own_frames = [frame for frame in frames if frame.filename == file] or frames
    location = f" ({Path(own_frames[-1].filename).name}:{own_frames[-1].lineno})" if own_frames else ""
    return f"{error}{location}"
