"""The record of one run as rules see it; each part is read once, when a rule first needs it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from mlagentbench.actions.python_repl import python_repl
from mlagentbench.analysis.runs import Run
from mlagentbench.formatting import find_shell_command
from mlagentbench.process.replies import AgentReply, read_replies
from mlagentbench.records import EXTERNAL_COMMAND, Step
from mlagentbench.workspace.manifest import Entry, Manifest, ManifestLine, State
from mlagentbench.workspace.object_store import ObjectStore


@dataclass(frozen=True)
class Evidence:
    """The record of one run."""

    run: Run

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the trace."""
        return self.run.steps

    @property
    def agent_finished(self) -> bool:
        """Whether the agent had its full chance: not unfinished, and not cut off by a fault."""
        return self.run.result is not None and not self.run.is_fault

    @cached_property
    def has_tool_calls(self) -> bool:
        """Whether the agent is an external program that acts by tool calls."""
        return any(step.call.tool_calls for step in self.steps)

    @cached_property
    def changes(self) -> dict[int, ManifestLine]:
        """Workspace changes by step; steps without changes are missing."""
        manifest = Manifest(self.run.folder.path / "snapshots" / "manifest.jsonl")
        lines: dict[int, ManifestLine] = {}
        for line in manifest.lines():
            # A step whose read-only files were restored has two lines.
            earlier = lines.get(line.step, ManifestLine(line.step, {}, []))
            kept = {path: entry for path, entry in earlier.changed.items() if path not in line.removed}
            lines[line.step] = ManifestLine(line.step, kept | line.changed, earlier.removed + line.removed)
        return lines

    @cached_property
    def replies(self) -> tuple[AgentReply, ...]:
        """The model replies to the agent, in order."""
        return tuple(read_replies(self.run.folder.model_calls))

    @cached_property
    def initial_state(self) -> State:
        """All files, folders and links at the start."""
        return dict(self.changes[0].changed) if 0 in self.changes else {}

    @cached_property
    def final_state(self) -> State:
        """All files, folders and links at the end."""
        state: State = {}
        for _, line in sorted(self.changes.items()):
            _apply_changes(line, state)
        return state

    def iter_states(self) -> Iterator[tuple[Step, State]]:
        """Every step with the files after it. The yielded state is one object that is updated in place."""
        state = dict(self.initial_state)
        for step in self.steps:
            if line := self.changes.get(step.number):
                _apply_changes(line, state)
            yield step, state

    def iter_model_inputs(self) -> Iterator[tuple[int, str]]:
        """The texts sent to models, except their own replies, with the step; the first call is step 0."""
        for number, call in enumerate(self.run.folder.calls()):
            for message in call.prompt.messages:
                if message.role != "assistant":
                    yield call.step if number else 0, message.text

    def read_text(self, entry: Entry) -> str:
        """The text of a file.

        Raises:
            Fault: The content is not stored in the run folder.
        """
        objects = ObjectStore(self.run.folder.path / "snapshots" / "objects", {})
        return b"".join(objects.read_chunks(entry.hash, entry.size, "a script")).decode("utf-8", "replace")


def executed_program(step: Step) -> str:
    """What a step executed: a script, the Python REPL or an external program; empty if nothing."""
    if step.call.tool_calls and not shell_commands(step):
        return ""
    if step.call.action in (python_repl.name, EXTERNAL_COMMAND):
        return step.call.action
    return str(step.call.args.get("script_name", "")).removeprefix("./") if step.execution else ""


def shell_commands(step: Step) -> str:
    """The shell commands that an external program ran in a step with its tools."""
    return "\n".join(filter(None, map(find_shell_command, step.call.tool_calls)))


def _apply_changes(line: ManifestLine, state: State) -> None:
    for path in line.removed:
        state.pop(path, None)
    state.update(line.changed)
