"""Steps as the page shows them: shortened to fit, with their diffs, costs, findings and grades."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple

from mlagentbench.analysis.anytime import StepGrade
from mlagentbench.analysis.runs import Run
from mlagentbench.formatting import action_title, find_shell_command, name_arguments
from mlagentbench.pages.viewer.access_views import MAX_ACCESS_BYTES, StepAccessView, view_accesses
from mlagentbench.pages.viewer.excerpts import Excerpt, make_excerpt, rendered_size, size_cap
from mlagentbench.pages.viewer.model_call_views import ModelCallView, view_model_calls
from mlagentbench.process.findings import Finding
from mlagentbench.records import Step

MAX_STEP_TEXT_BYTES = 1_500_000  # of all texts in a page except model calls
MAX_MODEL_CALL_BYTES = 400_000  # of all model calls in a page
MAX_INLINE_CHARS = 80  # of an argument that is shown inline
MAX_ARGUMENTS_SHOWN = 20  # of one action
MAX_NAME_CHARS = 60  # of the name of an action or an argument
MAX_FILES_NAMED = 3  # in the summary of a diff

StepKind = Literal["read", "edit", "run", "submit"]


class DiffView(NamedTuple):
    """The workspace changes of a step: a summary, and consecutive lines grouped by their HTML tag."""

    summary: str
    parts: tuple[tuple[str, str], ...]  # tag (ins, del, b, i or span) and text
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
    clock: float
    seconds: float
    peak_mb: float | None
    tokens: int
    dollars: float
    model_calls: tuple[ModelCallView, ...] = ()
    findings: tuple[Finding, ...] = ()
    grade: StepGrade | None = None
    access: StepAccessView | None = None


def classify_steps(run: Run) -> dict[int, StepKind]:
    """Classify each step by its effects, so that no action needs to be known by name."""
    changing = run.folder.open_store(writable=False).steps_with_changes()
    kinds: dict[int, StepKind] = {}
    for step in run.steps:
        ran = step.execution or any(map(find_shell_command, step.call.tool_calls))
        kinds[step.number] = "run" if ran else "edit" if step.number in changing else "read"
    if kinds and run.result and run.result.ending == "submitted":
        kinds[len(kinds)] = "submit"
    return kinds


def has_failed(step: Step) -> bool:
    """Whether the action, or the script it ran, failed."""
    return step.failed or bool(step.execution and step.execution.exit_code != 0)


def short_first_argument(step: Step) -> str:
    """The first argument, if it is short enough to be shown next to the action's name."""
    first = next(iter(_named_arguments(step)), ("", ""))[1]
    return first if _fits_inline(first) else ""


def view_steps(
    run: Run,
    kinds: Mapping[int, StepKind],
    findings: Sequence[Finding],
    grades: Sequence[StepGrade],
    after: int = 0,
) -> tuple[tuple[StepView, ...], tuple[ModelCallView, ...]]:
    """The steps after `after`, and the model calls after the last step."""
    steps = run.steps
    shown = steps[after:]
    fraction = len(shown) / len(steps) if steps else 1.0
    diffs = _diffs_by_step(run, after)
    call_budget = MAX_MODEL_CALL_BYTES * max(fraction, 1 / (len(steps) + 1))
    model_calls = _model_calls_by_step(run, after, call_budget)
    sizes = (rendered_size(text) for step in shown for text in _long_texts(step, diffs))
    cap = size_cap(sizes, MAX_STEP_TEXT_BYTES * fraction)
    grades_by_step = {grade.step: grade for grade in grades}
    accesses = view_accesses(run, after, MAX_ACCESS_BYTES * fraction)
    findings_by_step: dict[int, list[Finding]] = {}
    for finding in findings:
        for number in finding.steps:
            findings_by_step.setdefault(number, []).append(finding)
    views = []
    for step in shown:
        previous = steps[step.number - 2] if step.number > 1 else None
        view = _view_step(step, previous, kinds[step.number], diffs.get(step.number, ""), cap)
        views.append(
            replace(
                view,
                model_calls=tuple(model_calls.pop(step.number, ())),
                findings=tuple(findings_by_step.get(step.number, ())),
                grade=grades_by_step.get(step.number),
                access=accesses.get(step.number),
            )
        )
    return tuple(views), tuple(call for calls in model_calls.values() for call in calls)


def _diffs_by_step(run: Run, after: int) -> dict[int, str]:
    diffs: dict[int, str] = {}
    for number, text in run.folder.open_store(writable=False).iter_step_diffs(after):
        diffs[number] = diffs.get(number, "") + text
    return diffs


def _model_calls_by_step(run: Run, after: int, budget: float) -> dict[int, list[ModelCallView]]:
    by_step: dict[int, list[ModelCallView]] = {}
    for call in view_model_calls(run.folder.calls(), after, budget):
        by_step.setdefault(call.step, []).append(call)
    return by_step


def _long_texts(step: Step, diffs: Mapping[int, str]) -> Iterator[str]:
    yield step.observation
    yield step.call.thought
    yield diffs.get(step.number, "")
    for _, value in _named_arguments(step)[:MAX_ARGUMENTS_SHOWN]:
        yield value


def _named_arguments(step: Step) -> list[tuple[str, str]]:
    return [(name[:MAX_NAME_CHARS], _format_argument(value)) for name, value in name_arguments(step.call)]


def _format_argument(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def _view_step(step: Step, previous: Step | None, kind: StepKind, diff: str, cap: float) -> StepView:
    named, subject = _named_arguments(step), short_first_argument(step)
    rest = named[1:MAX_ARGUMENTS_SHOWN] if subject else named[:MAX_ARGUMENTS_SHOWN]
    execution = step.execution
    return StepView(
        number=step.number,
        kind=kind,
        failed=has_failed(step),
        action=action_title(step.call)[:MAX_NAME_CHARS],
        subject=subject,
        thought=make_excerpt(step.call.thought, cap),
        arguments=tuple((name, value) for name, value in rest if _fits_inline(value)),
        long_arguments=tuple(
            (name, make_excerpt(value, cap)) for name, value in rest if not _fits_inline(value)
        ),
        hidden_arguments=max(len(named) - MAX_ARGUMENTS_SHOWN, 0),
        observation=make_excerpt(step.observation, cap),
        output_file=execution.output_file if execution else "",
        diff=_view_diff(diff, cap) if diff else None,
        clock=step.clock,
        seconds=step.seconds,
        peak_mb=execution.peak_mb if execution else None,
        tokens=step.tokens - (previous.tokens if previous else 0),
        dollars=step.dollars - (previous.dollars if previous else 0.0),
    )


def _fits_inline(text: str) -> bool:
    return 0 < len(text) <= MAX_INLINE_CHARS and "\n" not in text


def _view_diff(text: str, cap: float) -> DiffView:
    lines = text.splitlines(keepends=True)
    tags = [_diff_line_tag(line) for line in lines]
    files = [line[6:].strip() for line in lines if line.startswith("+++ b/")]
    files += [line.partition(": ")[0] for line, tag in zip(lines, tags, strict=True) if tag == "b"]
    more = f" and {len(files) - MAX_FILES_NAMED} more" if len(files) > MAX_FILES_NAMED else ""
    names = ", ".join(files[:MAX_FILES_NAMED]) + more
    shown = make_excerpt(text, cap).head if rendered_size(text) > cap else text
    parts = [
        (tag, "".join(group)) for tag, group in groupby(shown.splitlines(keepends=True), key=_diff_line_tag)
    ]
    added, removed = tags.count("ins"), tags.count("del")
    return DiffView(f"{names} · +{added} −{removed} lines", tuple(parts), len(text) - len(shown))


def _diff_line_tag(line: str) -> str:
    if line.startswith(("+++ ", "--- ", "@@ ")):
        return "i"
    return {"+": "ins", "-": "del", " ": "span", "\\": "i", ".": "i"}.get(line[:1], "b")
