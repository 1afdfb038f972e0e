"""`compare` and `leaderboard`: which agent is better, by how much, and how certain, as text or Markdown."""

from collections.abc import Iterator, Sequence

from mlagentbench.analysis.compare import Comparison, Measure, TaskDifference
from mlagentbench.analysis.leaderboard import Leaderboard, Placement
from mlagentbench.analysis.metrics import Cell, Estimate
from mlagentbench.formatting import format_duration, format_percent, strip_control_chars
from mlagentbench.terminal.lists import ListRow, show_table


def show_comparison(comparison: Comparison) -> None:
    """Print the conclusion first, then the numbers behind it."""
    print(summarize_comparison(comparison))
    print()
    show_table([_measure_row(measure) for measure in comparison.measures])
    print()
    show_table([_task_row(task) for task in comparison.tasks])
    for reason in comparison.left_out:
        print(strip_control_chars(f"excluded: {reason}"))
    for warning in comparison.warnings:
        print(strip_control_chars(f"note: {warning}"))


def summarize_comparison(comparison: Comparison) -> str:
    """One sentence: which agent is better, by how much, and how certain that is."""
    a, b, first = f"A ({comparison.a})", f"B ({comparison.b})", comparison.measures[0]
    conclusions = {"a": f"{a} is better than {b}", "b": f"{b} is better than {a}"}
    conclusion = conclusions.get(first.better, f"no significant difference between {a} and {b}")
    measure = first.name.removesuffix(" rate")
    tasks = f"{first.tasks} {'task' if first.tasks == 1 else 'tasks'}"
    difference = f"{first.difference * 100:+.1f} percentage points{_format_interval(first)}"
    return strip_control_chars(
        f"{conclusion}: the difference in {measure} (A minus B) is {difference} over {tasks};"
        f" the probability that A is better is {first.chance:.0%}."
    )


def _format_interval(measure: Measure) -> str:
    if measure.low is None or measure.high is None:
        return ""
    return f" (95% interval {measure.low * 100:+.1f} to {measure.high * 100:+.1f})"


def _measure_row(measure: Measure) -> ListRow:
    return {
        "mean over tasks": measure.name,
        "A": format_rate(measure.a),
        "B": format_rate(measure.b),
        "A minus B": f"{measure.difference * 100:+.1f}{_format_interval(measure)}",
        "A better": f"{measure.chance:.0%}",
        "tasks": measure.tasks,
    }


def _task_row(task: TaskDifference) -> ListRow:
    row: ListRow = {"task": strip_control_chars(task.task)}
    for side, cell in (("A", task.a), ("B", task.b)):
        row |= {f"{side} runs": cell.judged, f"{side} success": format_rate(cell.success_rate.value)}
        row |= {f"{side} progress": format_rate(cell.progress.value)}
        row |= {f"{side} improvement": format_percent(cell.improvement.value)}
    better = {"a": "A", "b": "B", "": "-"}[task.better]
    return row | {"p": f"{task.p_value:.3f}", "adjusted p": f"{task.adjusted:.3f}", "better": better}


def format_rate(value: float | None) -> str:
    """A rate in percent."""
    return "-" if value is None else f"{value * 100:.1f}%"


def show_leaderboard(leaderboard: Leaderboard, markdown: bool) -> None:
    """Print the table, and the notes and warnings that belong to it."""
    rows = [_leaderboard_row(placement) for placement in leaderboard.places]
    tasks = ", ".join(leaderboard.tasks)
    start = "" if leaderboard.start == "starter" else f", runs from the {leaderboard.start}"
    heading = f"Edition {leaderboard.edition}{start}, ranked by {leaderboard.ranked_by}"
    count = f"{len(leaderboard.tasks)} task{'s' * (len(leaderboard.tasks) != 1)}"
    title = strip_control_chars(f"{heading}, {count}: {tasks}")
    if markdown:
        print("\n".join([title, "", *markdown_lines(rows), ""]))
    else:
        print(title)
        show_table(rows)
    for placement in leaderboard.places:
        for note in placement.notes:
            print(strip_control_chars(f"{'- ' if markdown else '* '}{placement.agent}: {note}"))
    for warning in leaderboard.warnings:
        print(strip_control_chars(f"{'- ' if markdown else 'note: '}{warning}"))


def _leaderboard_row(placement: Placement) -> ListRow:
    cell, low, high = placement.overall, placement.low, placement.high
    interval = "-" if low is None else f"{low}" if low == high else f"{low} to {high}"
    return {
        "rank": placement.rank or "-",
        "95% interval": interval,
        "agent": strip_control_chars(placement.agent) + (" *" if placement.notes else ""),
        "progress": _format_estimate(cell.progress),
        "success": _format_estimate(cell.success_rate),
        "paper's rule": format_rate(cell.improved_rate.value),
        "improvement": format_percent(cell.improvement.value),
        "valid": format_rate(cell.valid_rate.value),
        "runs": cell.runs,
        "faults": cell.faults,
        **_cost_columns(cell),
    }


def _cost_columns(cell: Cell) -> ListRow:
    per_run, per_success = cell.per_run, cell.per_success
    return {
        "time per run": format_duration(per_run.seconds) if per_run else "-",
        "tokens per run": f"{per_run.tokens:,.0f}" if per_run else "-",
        "dollars per success": f"{per_success.dollars:.2f}" if per_success else "-",
    }


def _format_estimate(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return format_rate(estimate.value)
    return f"{format_rate(estimate.value)} ({estimate.low * 100:.0f} to {estimate.high * 100:.0f})"


def markdown_lines(rows: Sequence[ListRow]) -> Iterator[str]:
    """A Markdown table; names are escaped, so that they cannot end a cell or contain markup."""
    yield f"| {' | '.join(rows[0])} |"
    yield f"|{'---|' * len(rows[0])}"
    for row in rows:
        yield f"| {' | '.join(_escape_markdown(str(value)) for value in row.values())} |"


def _escape_markdown(text: str) -> str:
    special = "\\`*_[]<>|"
    return "".join(f"\\{char}" if char in special else char for char in text).replace("\n", " ")
