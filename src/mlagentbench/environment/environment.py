"""The agent's world: actions, budget, steps; every step is on disk before the next begins."""

import difflib
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from mlagentbench.actions import base as actions
from mlagentbench.actions.base import MAX_REPLY_TOKENS, Action, ActionContext
from mlagentbench.actions.python_repl import NAME as REPL
from mlagentbench.actions.python_repl import rerun_command
from mlagentbench.errors import ActionError, Fault, PromptTooLong, RunOver, UsageError
from mlagentbench.records import BYTES_PER_GB, Call, Ending, Message, Prompt, Reply, Role, RunSpec, Step, Tool
from mlagentbench.system.journal import Journal, escape_invalid_utf8
from mlagentbench.task import Task
from mlagentbench.workspace.paths import format_path
from mlagentbench.workspace.store import WorkspaceTooLarge

MAX_CALLS_AFTER_END = 100  # calls after the end
RESUMED_AFTER_STEP = "what was stopped after its step had itself woken, and was ended"


class Environment:
    """One attempt at one task; recorded steps, if there are any, answer the agent until they run out."""

    def __init__(
        self, task: Task, spec: RunSpec, world: ActionContext, trace: Journal, recorded: tuple[Step, ...] = ()
    ) -> None:
        self.task, self.spec, self.context = task, spec, world
        self._all_actions: dict[str, Action] = actions.load_actions(
            spec.interactive, bool(world.model_calls.models)
        )
        self.actions = {name: action for name, action in self._all_actions.items() if not action.is_internal}
        self.steps = world.steps
        self.model_calls = world.model_calls
        self.model_calls.completed_steps = len(recorded)
        self.stop_token = world.stop_token
        self.current_call: Call | None = None
        self.fault: Fault | None = None
        self.on_step: Callable[[Step], None] = lambda step: None
        self._trace = trace
        self._recorded = list(recorded[::-1])
        self._clock, self._live_since = 0.0, time.monotonic()
        self._submitted = False
        self._calls_after_end = 0

    @property
    def next_recorded_call(self) -> Call | None:
        """The recorded call that comes next, while there is one."""
        return self._recorded[-1].call if self._recorded else None

    @property
    def elapsed_seconds(self) -> float:
        """Seconds of the run so far; a resumed run goes on where it was."""
        return self._clock if self._recorded else self._clock + time.monotonic() - self._live_since

    @property
    def seconds_left(self) -> float:
        """What is left of the wall-clock."""
        return max(self.spec.limits.hours * 3600 - self.elapsed_seconds, 0.0)

    @property
    def ending(self) -> Ending | None:
        """Why the run is over, or None while it goes on."""
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
        """What a model says to this; a prompt that it cannot take is PromptTooLong, and the agent may show less."""
        self.stop_token.raise_if_requested()
        if self.fault or self.done:
            raise self.fault or RunOver(f"the run is over: {self.ending}")
        prompt = Prompt(messages=tuple(messages), stop=tuple(stop), tools=tuple(tools), grammar=grammar)
        prompt = prompt.replace(max_tokens=max_tokens)
        try:
            reply = self.model_calls.ask(prompt, role)
        except (PromptTooLong, RunOver, UsageError):
            raise
        except Exception as error:
            raise self._record_fault(error) from error
        if not self._recorded:
            self._clock += self.model_calls.replayed_seconds
        self.model_calls.replayed_seconds = 0.0
        return reply

    def step(self, call: Call) -> str:
        """Do one action and return what the agent sees of it."""
        self.stop_token.raise_if_requested()
        if self.fault or self.done:
            self._calls_after_end += 1
            if self._calls_after_end > MAX_CALLS_AFTER_END:
                raise SystemExit(
                    "it went on after the end"
                )  # whoever catches every Exception will not hear of it else
            raise self.fault or RunOver(f"the run is over: {self.ending}")
        call, problem = _normalize_call(call)
        try:
            step = self._replay_step(call) if self._recorded else self._run_step(call, problem)
        except RunOver:  # an action asked a model for more than the budget has
            raise
        except Exception as error:
            raise self._record_fault(error) from error
        finally:
            self.current_call = self.context.output = None
        self.on_step(step)
        return step.observation

    def _record_fault(self, error: Exception) -> Fault:
        """Whatever fails below us is our fault and not the agent's, even if it catches this."""
        self.fault = (
            error if isinstance(error, Fault) else Fault(f"{type(error).__name__}: {format_error(error)}")
        )
        return self.fault

    def _run_step(self, call: Call, problem: str) -> Step:
        started, number = self.elapsed_seconds, len(self.steps) + 1
        disturbed = self._undo_changes_between_steps(number)
        self.current_call, self.context.execution = call, None
        self.context.step_time_limit_s = min(self.spec.limits.script_minutes * 60, self.seconds_left)
        action = self._all_actions.get(call.action)
        self.model_calls.inside = True
        try:
            if problem:
                raise ActionError(problem)
            observation, failed = self._run_action(action, call), False
        except ActionError as error:
            observation, failed = f"Error: {error}", True
        finally:
            self.model_calls.inside = False
        if self.context.access_log:
            self.context.access_log.write_step(number)
        ends = bool(action and action.ends_run and not failed)
        if ends:
            self.context.close()  # nothing may move in the workspace that is graded
        notes = disturbed + (self._snapshot_workspace(number) if action and action.changes_workspace else ())
        step = Step(
            number=number,
            call=call,
            observation=escape_invalid_utf8("\n".join([observation, *notes])),
            failed=failed,
            seconds=round(self.elapsed_seconds - started, 4),
            clock=round(self.elapsed_seconds, 4),
            tokens=self.model_calls.tokens,
            dollars=self.model_calls.dollars,
            execution=self.context.execution,
            notes=notes,
        )
        self._trace.append(step.model_dump_json())
        self._submitted = ends
        self._append(step)
        return step

    def _undo_changes_between_steps(self, number: int) -> tuple[str, ...]:
        """Undo what an interpreter did to files after its step."""
        if not self._terminate_resumed_processes():
            return ()
        self.context.store.restore(number - 1, self.context.workspace.root, self.context.workspace.owner)
        return (f"[{RESUMED_AFTER_STEP}; the workspace is again as that step left it]",)

    def _terminate_resumed_processes(self, broken: bool = False) -> bool:
        """End an interpreter that had itself woken after its step, an outside program only if it broke something."""
        world = self.context
        found = [
            each
            for each in (world.repl, world.external_program if broken else None)
            if each and not each.stayed_paused
        ]
        for each in found:
            each.close()
        world.repl = None if world.repl in found else world.repl
        world.external_program = None if world.external_program in found else world.external_program
        return bool(found)

    def _append(self, step: Step) -> None:
        self.steps.append(step)
        self.model_calls.step = step.number + 1

    def _run_action(self, action: Action | None, call: Call) -> str:
        if action is None:
            near = difflib.get_close_matches(call.action, self.actions, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ActionError(
                f"there is no action {call.action!r}.{hint} There are: {', '.join(self.actions)}"
            )
        try:
            return action(self.context, call.args)
        except Fault as fault:  # files that change under our hands are no fault of ours
            if not self._terminate_resumed_processes(broken=True):
                raise
            raise ActionError(f"{RESUMED_AFTER_STEP}: {fault}") from fault

    def _snapshot_workspace(self, number: int) -> tuple[str, ...]:
        """Keep the workspace; once more if somebody was at work meanwhile, who then is no more."""
        try:
            notes = self._snapshot_within_limits(number)
            if not self._terminate_resumed_processes():
                return notes
        except Fault:
            if not self._terminate_resumed_processes(broken=True):
                raise
        return (f"[{RESUMED_AFTER_STEP}]", *self._snapshot_within_limits(number))

    def _snapshot_within_limits(self, number: int) -> tuple[str, ...]:
        """Take the step's snapshot; what may not be is put back, and the agent is told."""
        store, workspace, limits = self.context.store, self.context.workspace, self.spec.limits
        execution = self.context.execution
        workspace.unlock()
        try:
            if execution and execution.limit == "disk":
                raise WorkspaceTooLarge("the disk limit was hit")
            change = store.snapshot(
                number,
                int(limits.disk_gb * BYTES_PER_GB),
                limits.files,
                int(limits.history_gb * BYTES_PER_GB),
            )
        except WorkspaceTooLarge as error:
            store.restore(number - 1, workspace.root, workspace.owner)
            return (f"[{error}; the workspace is again as it was before this step]",)
        touched = [path for path in change.modified + change.removed if workspace.is_read_only(path)]
        if not touched:
            return ()
        given = {path: entry for path, entry in store.state(0).items() if workspace.is_read_only(path)}
        store.restore(number, workspace.root, workspace.owner, overrides=given)
        store.snapshot(number)
        return (f"[read-only files were changed, and put back: {', '.join(map(format_path, touched[:5]))}]",)

    def _replay_step(self, call: Call) -> Step:
        step = self._recorded[-1]
        if (call.action, call.args) != (step.call.action, step.call.args):
            asked = call.action if call.action != step.call.action else f"{call.action} with other arguments"
            raise Fault(
                f"the agent does not repeat itself: step {step.number} was {step.call.action}, now it asks for {asked};"
                f" resume with --from-step {step.number - 1} to let it go on differently from there"
            )
        self._recorded.pop()
        self.model_calls.skip_recorded_calls(step.number)
        self._append(step)
        self._clock, self.model_calls.tokens, self.model_calls.dollars = step.clock, step.tokens, step.dollars
        action = self._all_actions.get(call.action)
        self._submitted = bool(action and action.ends_run and not step.failed)
        if action and action.reruns_on_resume and not step.failed:
            action(self.context, step.call.args)
        if not self._recorded:
            self._finish_replay()
        return step

    def _finish_replay(self) -> None:
        """Bring the workspace, the interpreter and the clock to where the record ends."""
        store, workspace = self.context.store, self.context.workspace
        session: list[Step] = []
        for step in self.steps:
            if step.call.action == REPL and not step.failed:
                session = (
                    [] if step.execution else [*session, step]
                )  # an execution is the end of an interpreter
        for step in [] if self._submitted else session:
            store.restore(step.number - 1, workspace.root, workspace.owner)
            rerun_command(self.context, str(step.call.args["command"]), self.spec.limits.script_minutes * 60)
        store.restore(len(self.steps), workspace.root, workspace.owner)
        if self.context.access_log:
            self.context.access_log.discard_pending()
        self._live_since = time.monotonic()

    def close(self) -> None:
        """End everything that still runs."""
        self.context.close()


def _normalize_call(call: Call) -> tuple[Call, str]:
    """The call as the trace will hold it, and what is wrong with it if JSON cannot."""
    said = call.replace(thought=escape_invalid_utf8(call.thought))
    try:
        return Call.model_validate_json(said.model_dump_json()), ""
    except (ValueError, TypeError, RecursionError) as error:
        problem = f"the call cannot be written as JSON: {escape_invalid_utf8(str(error))[:300]}"
        return said.replace(action=escape_invalid_utf8(call.action), args={}), problem


def format_error(error: BaseException, file: str = "") -> str:
    """An unforeseen error and where it happened: in `file` if it passed through there."""
    frames = traceback.extract_tb(error.__traceback__)
    here = [frame for frame in frames if frame.filename == file] or frames
    where = f" ({Path(here[-1].filename).name}:{here[-1].lineno})" if here else ""
    return f"{error}{where}"
