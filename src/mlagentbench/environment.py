"""The agent's world: actions, budget, steps; every step is on disk before the next begins."""

import difflib
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from mlagentbench.actions import base as actions
from mlagentbench.actions.base import REPLY, Action, World
from mlagentbench.actions.python_repl import NAME as REPL
from mlagentbench.actions.python_repl import rebuild
from mlagentbench.errors import ActionError, Fault, PromptTooLong, RunOver, UsageError
from mlagentbench.journal import Journal, printable
from mlagentbench.records import GB, Call, Ending, Message, Prompt, Reply, Role, RunSpec, Step, Tool
from mlagentbench.task import Task
from mlagentbench.workspace.paths import shown
from mlagentbench.workspace.store import TooBig

PATIENCE = 100  # calls after the end
WOKEN = "what was stopped after its step had itself woken, and was ended"


class Environment:
    """One attempt at one task; recorded steps, if there are any, answer the agent until they run out."""

    def __init__(
        self, task: Task, spec: RunSpec, world: World, trace: Journal, recorded: tuple[Step, ...] = ()
    ) -> None:
        self.task, self.spec, self.world = task, spec, world
        self._known: dict[str, Action] = actions.load(spec.interactive, bool(world.ledger.models))
        self.actions = {name: action for name, action in self._known.items() if not action.hidden}
        self.steps = world.steps
        self.ledger = world.ledger
        self.ledger.closed_steps = len(recorded)
        self.stopping = world.stopping
        self.current: Call | None = None
        self.fault: Fault | None = None
        self.on_step: Callable[[Step], None] = lambda step: None
        self._trace = trace
        self._recorded = list(recorded[::-1])
        self._clock, self._since = 0.0, time.monotonic()
        self._submitted = False
        self._refused = 0

    @property
    def replaying(self) -> Call | None:
        """The recorded call that comes next, while there is one."""
        return self._recorded[-1].call if self._recorded else None

    @property
    def clock(self) -> float:
        """Seconds of the run so far; a resumed run goes on where it was."""
        return self._clock if self._recorded else self._clock + time.monotonic() - self._since

    @property
    def seconds_left(self) -> float:
        """What is left of the wall-clock."""
        return max(self.spec.limits.hours * 3600 - self.clock, 0.0)

    @property
    def ending(self) -> Ending | None:
        """Why the run is over, or None while it goes on."""
        limits = self.spec.limits
        if self._submitted:
            return "submitted"
        if len(self.steps) >= limits.steps:
            return "steps"
        if self.ledger.exhausted:
            return self.ledger.exhausted
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
        max_tokens: int = REPLY,
    ) -> Reply:
        """What a model says to this; a prompt that it cannot take is PromptTooLong, and the agent may show less."""
        self.stopping.heed()
        if self.fault or self.done:
            raise self.fault or RunOver(f"the run is over: {self.ending}")
        prompt = Prompt(messages=tuple(messages), stop=tuple(stop), tools=tuple(tools), grammar=grammar)
        prompt = prompt.but(max_tokens=max_tokens)
        try:
            reply = self.ledger.ask(prompt, role)
        except (PromptTooLong, RunOver, UsageError):
            raise
        except Exception as error:
            raise self._void(error) from error
        if not self._recorded:
            self._clock += self.ledger.replayed
        self.ledger.replayed = 0.0
        return reply

    def step(self, call: Call) -> str:
        """Do one action and return what the agent sees of it."""
        self.stopping.heed()
        if self.fault or self.done:
            self._refused += 1
            if self._refused > PATIENCE:
                raise SystemExit("it went on after the end")  # whoever catches every Exception will not hear of it else
            raise self.fault or RunOver(f"the run is over: {self.ending}")
        call, problem = _as_recorded(call)
        try:
            step = self._replayed(call) if self._recorded else self._done(call, problem)
        except RunOver:  # an action asked a model for more than the budget has
            raise
        except Exception as error:
            raise self._void(error) from error
        finally:
            self.current = self.world.output = None
        self.on_step(step)
        return step.observation

    def _void(self, error: Exception) -> Fault:
        """Whatever fails below us is our fault and not the agent's, even if it catches this."""
        self.fault = error if isinstance(error, Fault) else Fault(f"{type(error).__name__}: {told(error)}")
        return self.fault

    def _done(self, call: Call, problem: str) -> Step:
        started, number = self.clock, len(self.steps) + 1
        disturbed = self._disturbed(number)
        self.current, self.world.execution = call, None
        self.world.seconds = min(self.spec.limits.script_minutes * 60, self.seconds_left)
        action = self._known.get(call.action)
        self.ledger.inside = True
        try:
            if problem:
                raise ActionError(problem)
            observation, failed = self._act(action, call), False
        except ActionError as error:
            observation, failed = f"Error: {error}", True
        finally:
            self.ledger.inside = False
        if self.world.book:
            self.world.book.keep(number)
        ends = bool(action and action.ends and not failed)
        if ends:
            self.world.close()  # nothing may move in the workspace that is graded
        notes = disturbed + (self._record_workspace(number) if action and action.changes else ())
        step = Step(
            number=number,
            call=call,
            observation=printable("\n".join([observation, *notes])),
            failed=failed,
            seconds=round(self.clock - started, 4),
            clock=round(self.clock, 4),
            tokens=self.ledger.tokens,
            dollars=self.ledger.dollars,
            execution=self.world.execution,
            notes=notes,
        )
        self._trace.append(step.model_dump_json())
        self._submitted = ends
        self._append(step)
        return step

    def _disturbed(self, number: int) -> tuple[str, ...]:
        """Undo what an interpreter did to files after its step."""
        if not self._calmed():
            return ()
        self.world.store.restore(number - 1, self.world.workspace.root, self.world.workspace.owner)
        return (f"[{WOKEN}; the workspace is again as that step left it]",)

    def _calmed(self, broken: bool = False) -> bool:
        """End an interpreter that had itself woken after its step, an outside program only if it broke something."""
        world = self.world
        found = [each for each in (world.repl, world.outside if broken else None) if each and not each.at_rest]
        for each in found:
            each.close()
        world.repl = None if world.repl in found else world.repl
        world.outside = None if world.outside in found else world.outside
        return bool(found)

    def _append(self, step: Step) -> None:
        self.steps.append(step)
        self.ledger.step = step.number + 1

    def _act(self, action: Action | None, call: Call) -> str:
        if action is None:
            near = difflib.get_close_matches(call.action, self.actions, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ActionError(f"there is no action {call.action!r}.{hint} There are: {', '.join(self.actions)}")
        try:
            return action(self.world, call.args)
        except Fault as fault:  # files that change under our hands are no fault of ours
            if not self._calmed(broken=True):
                raise
            raise ActionError(f"{WOKEN}: {fault}") from fault

    def _record_workspace(self, number: int) -> tuple[str, ...]:
        """Keep the workspace; once more if somebody was at work meanwhile, who then is no more."""
        try:
            notes = self._keep_workspace(number)
            if not self._calmed():
                return notes
        except Fault:
            if not self._calmed(broken=True):
                raise
        return (f"[{WOKEN}]", *self._keep_workspace(number))

    def _keep_workspace(self, number: int) -> tuple[str, ...]:
        """Take the step's snapshot; what may not be is put back, and the agent is told."""
        store, workspace, limits = self.world.store, self.world.workspace, self.spec.limits
        execution = self.world.execution
        workspace.unlock()
        try:
            if execution and execution.limit == "disk":
                raise TooBig("the disk limit was hit")
            change = store.snapshot(number, int(limits.disk_gb * GB), limits.files, int(limits.history_gb * GB))
        except TooBig as error:
            store.restore(number - 1, workspace.root, workspace.owner)
            return (f"[{error}; the workspace is again as it was before this step]",)
        touched = [path for path in change.modified + change.removed if workspace.is_read_only(path)]
        if not touched:
            return ()
        given = {path: entry for path, entry in store.state(0).items() if workspace.is_read_only(path)}
        store.restore(number, workspace.root, workspace.owner, over=given)
        store.snapshot(number)
        return (f"[read-only files were changed, and put back: {', '.join(map(shown, touched[:5]))}]",)

    def _replayed(self, call: Call) -> Step:
        step = self._recorded[-1]
        if (call.action, call.args) != (step.call.action, step.call.args):
            asked = call.action if call.action != step.call.action else f"{call.action} with other arguments"
            raise Fault(
                f"the agent does not repeat itself: step {step.number} was {step.call.action}, now it asks for {asked};"
                f" resume with --from-step {step.number - 1} to let it go on differently from there"
            )
        self._recorded.pop()
        self.ledger.pass_over(step.number)
        self._append(step)
        self._clock, self.ledger.tokens, self.ledger.dollars = step.clock, step.tokens, step.dollars
        action = self._known.get(call.action)
        self._submitted = bool(action and action.ends and not step.failed)
        if action and action.replayed and not step.failed:
            action(self.world, step.call.args)
        if not self._recorded:
            self._go_live()
        return step

    def _go_live(self) -> None:
        """Bring the workspace, the interpreter and the clock to where the record ends."""
        store, workspace = self.world.store, self.world.workspace
        session: list[Step] = []
        for step in self.steps:
            if step.call.action == REPL and not step.failed:
                session = [] if step.execution else [*session, step]  # an execution is the end of an interpreter
        for step in [] if self._submitted else session:
            store.restore(step.number - 1, workspace.root, workspace.owner)
            rebuild(self.world, str(step.call.args["command"]), self.spec.limits.script_minutes * 60)
        store.restore(len(self.steps), workspace.root, workspace.owner)
        if self.world.book:
            self.world.book.forget()
        self._since = time.monotonic()

    def close(self) -> None:
        """End everything that still runs."""
        self.world.close()


def _as_recorded(call: Call) -> tuple[Call, str]:
    """The call as the trace will hold it, and what is wrong with it if JSON cannot."""
    said = call.but(thought=printable(call.thought))
    try:
        return Call.model_validate_json(said.model_dump_json()), ""
    except (ValueError, TypeError, RecursionError) as error:
        problem = f"the call cannot be written as JSON: {printable(str(error))[:300]}"
        return said.but(action=printable(call.action), args={}), problem


def told(error: BaseException, file: str = "") -> str:
    """An unforeseen error and where it happened: in `file` if it passed through there."""
    frames = traceback.extract_tb(error.__traceback__)
    here = [frame for frame in frames if frame.filename == file] or frames
    where = f" ({Path(here[-1].filename).name}:{here[-1].lineno})" if here else ""
    return f"{error}{where}"
