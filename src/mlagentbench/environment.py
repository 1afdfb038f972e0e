"""The agent's world: actions, budget, steps; every step is on disk before the next begins."""

import difflib
import time
from collections.abc import Callable
from pathlib import Path

from mlagentbench.actions import base as actions
from mlagentbench.actions.base import Action, World
from mlagentbench.actions.python_repl import NAME as REPL
from mlagentbench.actions.python_repl import python_repl
from mlagentbench.errors import ActionError, Fault, RunOver
from mlagentbench.journal import Journal
from mlagentbench.records import Call, Ending, RunSpec, Step
from mlagentbench.runtimes.base import Runtime
from mlagentbench.sandbox.base import Box, Sandbox
from mlagentbench.sandbox.choose import unprivileged_user
from mlagentbench.task import Task
from mlagentbench.workspace.files import Workspace
from mlagentbench.workspace.store import Store, TooBig

GB = 2**30
Person = Callable[[str], str]


class Environment:
    """One attempt at one task; recorded steps, if there are any, answer the agent until they run out."""

    def __init__(
        self,
        task: Task,
        spec: RunSpec,
        folder: Path,
        store: Store,
        sandbox: Sandbox,
        runtime: Runtime,
        recorded: tuple[Step, ...] = (),
        person: Person | None = None,
    ) -> None:
        self.task, self.spec = task, spec
        self.actions: dict[str, Action] = actions.load(spec.interactive)
        self.steps: list[Step] = []
        self.tokens, self.dollars = 0, 0.0
        self.current: Call | None = None
        self.on_step: Callable[[Step], None] = lambda step: None
        self._trace = Journal(folder / "trace.jsonl")
        self._owner = unprivileged_user(spec.id) if sandbox.name == "bwrap" else None
        self._workspace = Workspace(folder / "workspace", task.config.read_only, self._owner)
        self._recorded = list(recorded[::-1])
        self._clock, self._since = 0.0, time.monotonic()
        self._submitted = False
        outputs = folder / "outputs"
        outputs.mkdir(exist_ok=True)
        self.world = World(
            workspace=self._workspace,
            store=store,
            sandbox=sandbox,
            box=lambda: self._box(runtime),
            outputs=outputs,
            seconds_left=lambda: self.seconds_left,
            steps=self.steps,
            person=person,
        )

    def _box(self, runtime: Runtime) -> Box:
        return Box(
            workspace=self._workspace.root,
            runtime=runtime,
            limits=self.spec.limits,
            read_only=tuple(self._workspace.read_only_paths()),
            environment={"SEED": str(self.spec.seed)},
            owner=self._owner,
        )

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
        if limits.tokens is not None and self.tokens >= limits.tokens:
            return "tokens"
        if limits.dollars is not None and self.dollars >= limits.dollars:
            return "money"
        return "time" if self.seconds_left <= 0 else None

    @property
    def done(self) -> bool:
        """Whether the run is over."""
        return self.ending is not None

    def spend(self, tokens: int, dollars: float) -> None:
        """Count what a model cost."""
        self.tokens += tokens
        self.dollars += dollars

    def step(self, call: Call) -> str:
        """Do one action and return what the agent sees of it."""
        if self.done:
            raise RunOver(f"the run is over: {self.ending}")
        if self._recorded:
            return self._replay(call)
        started, number = self.clock, len(self.steps) + 1
        self.current, self.world.execution = call, None
        failed, action = False, self.actions.get(call.action)
        try:
            observation = self._act(action, call)
        except ActionError as error:
            observation, failed = f"Error: {error}", True
        if action and action.ends and not failed:
            self.world.close()  # nothing may move in the workspace that is graded
        notes = self._record_workspace(number) if action and action.changes else ()
        step = Step(
            number=number,
            call=call,
            observation="\n".join([observation, *notes]),
            failed=failed,
            seconds=round(self.clock - started, 4),
            clock=round(self.clock, 4),
            tokens=self.tokens,
            dollars=self.dollars,
            execution=self.world.execution,
            notes=notes,
        )
        self._trace.append(step.model_dump_json())
        self._submitted = bool(action and action.ends and not failed)
        self.steps.append(step)
        self.current = self.world.output = None
        self.on_step(step)
        return step.observation

    def _act(self, action: Action | None, call: Call) -> str:
        if action is None:
            near = difflib.get_close_matches(call.action, self.actions, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ActionError(f"there is no action {call.action!r}.{hint} There are: {', '.join(self.actions)}")
        return _printable(action(self.world, call.args))

    def _record_workspace(self, number: int) -> tuple[str, ...]:
        """Take the step's snapshot; what may not be is put back, and the agent is told."""
        store, limits = self.world.store, self.spec.limits
        execution = self.world.execution
        try:
            if execution and execution.limit == "disk":
                raise TooBig("the disk limit was hit")
            change = store.snapshot(number, int(limits.disk_gb * GB), limits.files)
        except TooBig as error:
            store.restore(number - 1, self._workspace.root, self._owner)
            return (f"[{error}; the workspace is again as it was before this step]",)
        touched = [path for path in change.modified + change.removed if self._workspace.is_read_only(path)]
        if not touched:
            return ()
        given = {path: entry for path, entry in store.state(0).items() if self._workspace.is_read_only(path)}
        store.restore(number, self._workspace.root, self._owner, over=given)
        store.snapshot(number)
        return (f"[read-only files were changed, and put back: {', '.join(touched[:5])}]",)

    def _replay(self, call: Call) -> str:
        step = self._recorded[-1]
        if (call.action, call.args) != (step.call.action, step.call.args):
            raise Fault(
                f"the agent does not repeat itself: step {step.number} was {step.call.action}, now it asks for"
                f" {call.action}; resume with --from-step {step.number - 1} to let it go on differently from there"
            )
        self._recorded.pop()
        self.steps.append(step)
        self._clock, self.tokens, self.dollars = step.clock, step.tokens, step.dollars
        action = self.actions.get(call.action)
        self._submitted = bool(action and action.ends and not step.failed)
        if not self._recorded:
            self.go_live()
        return step.observation

    def go_live(self) -> None:
        """Bring the workspace, the interpreter and the clock to where the record ends."""
        store, root = self.world.store, self._workspace.root
        done = list(self.steps)
        for step in [step for step in done if step.call.action == REPL and not step.failed]:
            self.steps[:] = done[: step.number - 1]  # so that its output goes where it went
            store.restore(step.number - 1, root, self._owner)
            python_repl(self.world, str(step.call.args["command"]))
        self.steps[:] = done
        store.restore(len(done), root, self._owner)
        self.world.execution = self.world.output = None
        self._since = time.monotonic()

    def close(self) -> None:
        """End everything that still runs."""
        self.world.close()
        self.world.sandbox.release(self.world.box())


def _printable(text: str) -> str:
    """Text that JSON can carry: names that are no UTF-8 are shown with escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
