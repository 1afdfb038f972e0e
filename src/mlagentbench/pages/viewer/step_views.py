"""Steps as the page shows them: shortened to fit, with what they changed, cost and were found to be."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple

from mlagentbench.analysis.anytime import StepGrade
from mlagentbench.analysis.runs import Run
from mlagentbench.pages.viewer.access_views import MAX_ACCESS_BYTES as ACCESSED_BUDGET
from mlagentbench.pages.viewer.access_views import StepAccessView, view_accesses
from mlagentbench.pages.viewer.excerpts import Excerpt, make_excerpt, rendered_size, size_cap
from mlagentbench.pages.viewer.model_call_views import ModelCallView, view_model_calls
from mlagentbench.process.findings import Finding
from mlagentbench.records import Step

MAX_STEP_TEXT_BYTES = 1_500_000  # bytes of text in a page, besides what models were asked
MAX_MODEL_CALL_BYTES = 400_000  # bytes of that
MAX_INLINE_CHARS = 80  # characters of an argument that stands in a line
MAX_ARGUMENTS_SHOWN = 20  # shown of one call
MAX_NAME_CHARS = 60  # characters of the name of an action or an argument
MAX_FILES_NAMED = 3  # files named in the summary of a difference


StepKind = Literal["look", "edit", "run", "end"]


class DiffView(NamedTuple):
    """What a step did to the workspace: lines of one kind together, and a summary."""

    summary: str
    parts: tuple[tuple[str, str], ...]  # (ins, del, b or span; text)
    omitted_chars: int


@dataclass(frozen=True)
class StepView:
    """One step."""

    number: int
    kind: StepKind
    failed: bool
    action: str
    subject: str
    thought: Excerpt
    arguments: tuple[tuple[str, str], ...]
    long_arguments: tuple[tuple[str, Excerpt], ...]
    hidden_arguments: int
    observation: Excerpt
    output_file: str
    diff: DiffView | None
    model_calls: tuple[ModelCallView, ...]
    started: float
    clock: float
    seconds: float
    peak_mb: float | None
    tokens: int
    dollars: float
    findings: tuple[Finding, ...] = ()
    grade: StepGrade | None = None
    access: StepAccessView | None = None


def classify_steps(run: Run) -> dict[int, StepKind]:
    """What each step was, by what came of it, so that no action need be known."""
    eventful = run.folder.open_store(writable=False).steps_with_changes()
    kinds: dict[int, StepKind] = {}
    for step in run.steps:
        kinds[step.number] = "run" if step.execution else "edit" if step.number in eventful else "look"
    if kinds and run.result and run.result.ending == "submitted":
        kinds[len(kinds)] = "end"
    return kinds


def has_failed(step: Step) -> bool:
    """Whether the action failed, or the script that it ran."""
    return step.failed or bool(step.execution and step.execution.exit_code != 0)


def short_first_argument(step: Step) -> str:
    """The first argument, if it fits beside the action's name."""
    first = next(iter(_named_arguments(step)), ("", ""))[1]
    return first if _fits_inline(first) else ""


def view_steps(
    run: Run,
    kinds: Mapping[int, StepKind],
    findings: Sequence[Finding],
    grades: Sequence[StepGrade],
    after: int = 0,
) -> tuple[tuple[StepView, ...], tuple[ModelCallView, ...]]:
    """The steps after one, and what models were asked beyond the last."""
    steps = run.steps
    chosen = steps[after:]
    share = len(chosen) / len(steps) if steps else 1.0
    changes = _diffs_by_step(run, after)
    calls = _model_calls_by_step(run, after, MAX_MODEL_CALL_BYTES * max(share, 1 / (len(steps) + 1)))
    cap = size_cap(
        (rendered_size(text) for step in chosen for text in _long_texts(step, changes)),
        MAX_STEP_TEXT_BYTES * share,
    )
    graded = {grade.step: grade for grade in grades}
    tried = view_accesses(run, after, ACCESSED_BUDGET * share)
    noted: dict[int, list[Finding]] = {}
    for finding in findings:
        for number in finding.steps:
            noted.setdefault(number, []).append(finding)
    made = []
    for step in chosen:
        before = steps[step.number - 2] if step.number > 1 else None
        one = _view_step(step, before, kinds[step.number], changes.get(step.number, ""), cap)
        told: dict[str, Any] = {
            "findings": tuple(noted.get(step.number, ())),
            "grade": graded.get(step.number),
        }
        told["access"] = tried.get(step.number)
        made.append(replace(one, model_calls=tuple(calls.pop(step.number, ())), **told))
    return tuple(made), tuple(call for left in calls.values() for call in left)


def _diffs_by_step(run: Run, after: int) -> dict[int, str]:
    found: dict[int, str] = {}
    for number, text in run.folder.open_store(writable=False).iter_step_diffs(after):
        found[number] = found.get(number, "") + text
    return found


def _model_calls_by_step(run: Run, after: int, budget: float) -> dict[int, list[ModelCallView]]:
    found: dict[int, list[ModelCallView]] = {}
    for call in view_model_calls(run.folder.calls(), after, budget):
        found.setdefault(call.step, []).append(call)
    return found


def _long_texts(step: Step, changes: Mapping[int, str]) -> Iterator[str]:
    yield step.observation
    yield step.call.thought
    yield changes.get(step.number, "")
    for _, value in _named_arguments(step)[:MAX_ARGUMENTS_SHOWN]:
        yield value


def _named_arguments(step: Step) -> list[tuple[str, str]]:
    return [(name[:MAX_NAME_CHARS], _format_argument(value)) for name, value in step.call.args.items()]


def _format_argument(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def _view_step(step: Step, before: Step | None, kind: StepKind, change: str, cap: float) -> StepView:
    named, subject = _named_arguments(step), short_first_argument(step)
    rest = named[1:MAX_ARGUMENTS_SHOWN] if subject else named[:MAX_ARGUMENTS_SHOWN]
    execution = step.execution
    return StepView(
        number=step.number,
        kind=kind,
        failed=has_failed(step),
        action=step.call.action[:MAX_NAME_CHARS],
        subject=subject,
        thought=make_excerpt(step.call.thought, cap),
        arguments=tuple((name, value) for name, value in rest if _fits_inline(value)),
        long_arguments=tuple(
            (name, make_excerpt(value, cap)) for name, value in rest if not _fits_inline(value)
        ),
        hidden_arguments=max(len(named) - MAX_ARGUMENTS_SHOWN, 0),
        observation=make_excerpt(step.observation, cap),
        output_file=execution.output_file if execution else "",
        diff=_view_diff(change, cap) if change else None,
        model_calls=(),
        started=before.clock if before else 0.0,
        clock=step.clock,
        seconds=step.seconds,
        peak_mb=execution.peak_mb if execution else None,
        tokens=step.tokens - (before.tokens if before else 0),
        dollars=step.dollars - (before.dollars if before else 0.0),
    )


def _fits_inline(text: str) -> bool:
    return 0 < len(text) <= MAX_INLINE_CHARS and "\n" not in text


def _view_diff(text: str, cap: float) -> DiffView:
    lines = text.splitlines(keepends=True)
    kinds = [_diff_line_tag(line) for line in lines]
    files = [line[6:].strip() for line in lines if line.startswith("+++ b/")]
    files += [line.partition(": ")[0] for line, kind in zip(lines, kinds, strict=True) if kind == "b"]
    names = ", ".join(files[:MAX_FILES_NAMED]) + (
        f" and {len(files) - MAX_FILES_NAMED} more" if len(files) > MAX_FILES_NAMED else ""
    )
    kept = make_excerpt(text, cap).head if rendered_size(text) > cap else text
    parts = [
        (kind, "".join(line for line, _ in group))
        for kind, group in groupby(
            ((line, _diff_line_tag(line)) for line in kept.splitlines(keepends=True)),
            key=lambda pair: pair[1],
        )
    ]
    added, removed = kinds.count("ins"), kinds.count("del")
    return DiffView(f"{names} · +{added} −{removed} lines", tuple(parts), len(text) - len(kept))


def _diff_line_tag(line: str) -> str:
    if line.startswith(("+++ ", "--- ", "@@ ")):
        return "i"
    return {"+": "ins", "-": "del", " ": "span", "\\": "i", ".": "i"}.get(line[:1], "b")
