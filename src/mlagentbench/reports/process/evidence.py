"""What rules look at: the record of one run, each part read once and only if a rule asks for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from mlagentbench.records import Step
from mlagentbench.reports.process.talk import Said, said
from mlagentbench.reports.runs import Run
from mlagentbench.workspace.manifest import Line, Manifest, State


@dataclass(frozen=True)
class Evidence:
    """One run, for rules."""

    run: Run

    @property
    def steps(self) -> tuple[Step, ...]:
        """What was done."""
        return self.run.steps

    @property
    def ended(self) -> bool:
        """Whether the agent came to its own end: what a fault or the clock of today cut off may still be mended."""
        return self.run.result is not None and not self.run.fault

    @cached_property
    def changes(self) -> dict[int, Line]:
        """What steps changed in the workspace; those that changed nothing are not there."""
        manifest = Manifest(self.run.folder.path / "snapshots" / "manifest.jsonl")
        lines: dict[int, Line] = {}
        for line in manifest.lines():
            earlier = lines.get(line.step, Line(line.step, {}, []))  # a step that was put back has two lines
            kept = {path: entry for path, entry in earlier.changed.items() if path not in line.removed}
            lines[line.step] = Line(line.step, kept | line.changed, earlier.removed + line.removed)
        return lines

    @cached_property
    def said(self) -> tuple[Said, ...]:
        """The replies of models to the agent, in order."""
        return tuple(said(self.run.folder.model_calls))

    def states(self) -> Iterator[tuple[Step, State]]:
        """Every step with all files as they were after it; the state is one and the same object, and changes."""
        state: State = {}
        self._apply(state, 0)
        for step in self.steps:
            self._apply(state, step.number)
            yield step, state

    def _apply(self, state: State, step: int) -> None:
        line = self.changes.get(step)
        if line:
            for path in line.removed:
                state.pop(path, None)
            state.update(line.changed)
