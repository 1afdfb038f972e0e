"""Steps as the page shows them: shortened to fit, with what they changed, cost and were found to be."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple

from mlagentbench.records import Step
from mlagentbench.reports.anytime import StepGrade
from mlagentbench.reports.process.findings import Finding
from mlagentbench.reports.runs import Run
from mlagentbench.reports.viewer.accessed import BUDGET as ACCESSED_BUDGET
from mlagentbench.reports.viewer.accessed import Accessed, accessed
from mlagentbench.reports.viewer.asked import Asked, asked
from mlagentbench.reports.viewer.pieces import Piece, cut, level, weight

BUDGET = 1_500_000  # bytes of text in a page, besides what models were asked
ASKED_BUDGET = 400_000  # bytes of that
INLINE = 80  # characters of an argument that stands in a line
ARGUMENTS = 20  # shown of one call
NAME = 60  # characters of the name of an action or an argument
TOUCHED = 3  # files named in the summary of a difference


Kind = Literal["look", "edit", "run", "end"]


class Change(NamedTuple):
    """What a step did to the workspace: lines of one kind together, and a summary."""

    summary: str
    parts: tuple[tuple[str, str], ...]  # (ins, del, b or span; text)
    left_out: int


@dataclass(frozen=True)
class Shown:
    """One step."""

    number: int
    kind: Kind
    failed: bool
    action: str
    subject: str
    thought: Piece
    arguments: tuple[tuple[str, str], ...]
    texts: tuple[tuple[str, Piece], ...]
    more_arguments: int
    observation: Piece
    output_file: str
    change: Change | None
    asked: tuple[Asked, ...]
    began: float
    clock: float
    seconds: float
    peak_mb: float | None
    tokens: int
    dollars: float
    findings: tuple[Finding, ...] = ()
    grade: StepGrade | None = None
    accessed: Accessed | None = None


def kinds_of(run: Run) -> dict[int, Kind]:
    """What each step was, by what came of it, so that no action need be known."""
    eventful = run.folder.store(writable=False).eventful()
    kinds: dict[int, Kind] = {}
    for step in run.steps:
        kinds[step.number] = "run" if step.execution else "edit" if step.number in eventful else "look"
    if kinds and run.result and run.result.ending == "submitted":
        kinds[len(kinds)] = "end"
    return kinds


def went_wrong(step: Step) -> bool:
    """Whether the action failed, or the script that it ran."""
    return step.failed or bool(step.execution and step.execution.exit_code != 0)


def subject_of(step: Step) -> str:
    """The first argument, if it fits beside the action's name."""
    first = next(iter(_named(step)), ("", ""))[1]
    return first if _is_short(first) else ""


def shown_steps(
    run: Run, kinds: Mapping[int, Kind], findings: Sequence[Finding], grades: Sequence[StepGrade], after: int = 0
) -> tuple[tuple[Shown, ...], tuple[Asked, ...]]:
    """The steps after one, and what models were asked beyond the last."""
    steps = run.steps
    chosen = steps[after:]
    share = len(chosen) / len(steps) if steps else 1.0
    changes = _changes(run, after)
    calls = _calls(run, after, ASKED_BUDGET * max(share, 1 / (len(steps) + 1)))
    cap = level((weight(text) for step in chosen for text in _texts(step, changes)), BUDGET * share)
    graded = {grade.step: grade for grade in grades}
    tried = accessed(run, after, ACCESSED_BUDGET * share)
    noted: dict[int, list[Finding]] = {}
    for finding in findings:
        for number in finding.steps:
            noted.setdefault(number, []).append(finding)
    made = []
    for step in chosen:
        before = steps[step.number - 2] if step.number > 1 else None
        one = _shown(step, before, kinds[step.number], changes.get(step.number, ""), cap)
        told: dict[str, Any] = {"findings": tuple(noted.get(step.number, ())), "grade": graded.get(step.number)}
        told["accessed"] = tried.get(step.number)
        made.append(replace(one, asked=tuple(calls.pop(step.number, ())), **told))
    return tuple(made), tuple(call for left in calls.values() for call in left)


def _changes(run: Run, after: int) -> dict[int, str]:
    found: dict[int, str] = {}
    for number, text in run.folder.store(writable=False).changes(after):
        found[number] = found.get(number, "") + text
    return found


def _calls(run: Run, after: int, budget: float) -> dict[int, list[Asked]]:
    found: dict[int, list[Asked]] = {}
    for call in asked(run.folder.calls(), after, budget):
        found.setdefault(call.step, []).append(call)
    return found


def _texts(step: Step, changes: Mapping[int, str]) -> Iterator[str]:
    yield step.observation
    yield step.call.thought
    yield changes.get(step.number, "")
    for _, value in _named(step)[:ARGUMENTS]:
        yield value


def _named(step: Step) -> list[tuple[str, str]]:
    return [(name[:NAME], _written(value)) for name, value in step.call.args.items()]


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def _shown(step: Step, before: Step | None, kind: Kind, change: str, cap: float) -> Shown:
    named, subject = _named(step), subject_of(step)
    rest = named[1:ARGUMENTS] if subject else named[:ARGUMENTS]
    execution = step.execution
    return Shown(
        number=step.number,
        kind=kind,
        failed=went_wrong(step),
        action=step.call.action[:NAME],
        subject=subject,
        thought=cut(step.call.thought, cap),
        arguments=tuple((name, value) for name, value in rest if _is_short(value)),
        texts=tuple((name, cut(value, cap)) for name, value in rest if not _is_short(value)),
        more_arguments=max(len(named) - ARGUMENTS, 0),
        observation=cut(step.observation, cap),
        output_file=execution.output_file if execution else "",
        change=_change(change, cap) if change else None,
        asked=(),
        began=before.clock if before else 0.0,
        clock=step.clock,
        seconds=step.seconds,
        peak_mb=execution.peak_mb if execution else None,
        tokens=step.tokens - (before.tokens if before else 0),
        dollars=step.dollars - (before.dollars if before else 0.0),
    )


def _is_short(text: str) -> bool:
    return 0 < len(text) <= INLINE and "\n" not in text


def _change(text: str, cap: float) -> Change:
    lines = text.splitlines(keepends=True)
    kinds = [_kind(line) for line in lines]
    files = [line[6:].strip() for line in lines if line.startswith("+++ b/")]
    files += [line.partition(": ")[0] for line, kind in zip(lines, kinds, strict=True) if kind == "b"]
    names = ", ".join(files[:TOUCHED]) + (f" and {len(files) - TOUCHED} more" if len(files) > TOUCHED else "")
    kept = cut(text, cap).head if weight(text) > cap else text
    parts = [
        (kind, "".join(line for line, _ in group))
        for kind, group in groupby(
            ((line, _kind(line)) for line in kept.splitlines(keepends=True)), key=lambda pair: pair[1]
        )
    ]
    added, removed = kinds.count("ins"), kinds.count("del")
    return Change(f"{names} · +{added} −{removed} lines", tuple(parts), len(text) - len(kept))


def _kind(line: str) -> str:
    if line.startswith(("+++ ", "--- ", "@@ ")):
        return "i"
    return {"+": "ins", "-": "del", " ": "span", "\\": "i", ".": "i"}.get(line[:1], "b")
