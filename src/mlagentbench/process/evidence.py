"""What rules look at: the record of one run, each part read once and only if a rule asks for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from mlagentbench.actions.python_repl import python_repl
from mlagentbench.analysis.runs import Run
from mlagentbench.process.replies import AgentReply, read_replies
from mlagentbench.records import Step
from mlagentbench.workspace.manifest import Entry, Manifest, ManifestLine, State
from mlagentbench.workspace.object_store import ObjectStore

EXTERNAL_COMMAND = "Command"  # the step of an outside program


@dataclass(frozen=True)
class Evidence:
    """One run, for rules."""

    run: Run

    @property
    def steps(self) -> tuple[Step, ...]:
        """What was done."""
        return self.run.steps

    @property
    def agent_finished(self) -> bool:
        """Whether the agent came to its own end: what a fault or the clock of today cut off may still be mended."""
        return self.run.result is not None and not self.run.is_fault

    @cached_property
    def changes(self) -> dict[int, ManifestLine]:
        """What steps changed in the workspace; those that changed nothing are not there."""
        manifest = Manifest(self.run.folder.path / "snapshots" / "manifest.jsonl")
        lines: dict[int, ManifestLine] = {}
        for line in manifest.lines():
            earlier = lines.get(
                line.step, ManifestLine(line.step, {}, [])
            )  # a step that was put back has two lines
            kept = {path: entry for path, entry in earlier.changed.items() if path not in line.removed}
            lines[line.step] = ManifestLine(line.step, kept | line.changed, earlier.removed + line.removed)
        return lines

    @cached_property
    def replies(self) -> tuple[AgentReply, ...]:
        """The replies of models to the agent, in order."""
        return tuple(read_replies(self.run.folder.model_calls))

    @cached_property
    def initial_state(self) -> State:
        """Every file, folder and link that the agent was given."""
        return dict(self.changes[0].changed) if 0 in self.changes else {}

    @cached_property
    def final_state(self) -> State:
        """Every file, folder and link that it left."""
        state: State = {}
        for _, line in sorted(self.changes.items()):
            _apply_changes(line, state)
        return state

    def iter_states(self) -> Iterator[tuple[Step, State]]:
        """Every step with all files as they were after it; the state is one and the same object, and changes."""
        state = dict(self.initial_state)
        for step in self.steps:
            if line := self.changes.get(step.number):
                _apply_changes(line, state)
            yield step, state

    def iter_model_inputs(self) -> Iterator[tuple[int, str]]:
        """What models were told, but not by themselves, and for which step; the first question counts for step 0."""
        for number, call in enumerate(self.run.folder.calls()):
            for message in call.prompt.messages:
                if message.role != "assistant":
                    yield call.step if number else 0, message.text

    def read_text(self, entry: Entry) -> str:
        """What a file said; one whose content is not in the run's folder is a fault."""
        objects = ObjectStore(self.run.folder.path / "snapshots" / "objects", {})
        return b"".join(objects.read_chunks(entry.hash, entry.size, "a script")).decode("utf-8", "replace")


def executed_program(step: Step) -> str:
    """What a step ran: a script, the interpreter, an outside program; empty if it ran nothing."""
    if step.call.action in (python_repl.name, EXTERNAL_COMMAND):
        return step.call.action
    return str(step.call.args.get("script_name", "")).removeprefix("./") if step.execution else ""


def _apply_changes(line: ManifestLine, state: State) -> None:
    for path in line.removed:
        state.pop(path, None)
    state.update(line.changed)
