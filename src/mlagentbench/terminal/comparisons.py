"""`compare` and `leaderboard`: who is better, by how much, how sure, for a terminal or as Markdown."""

from collections.abc import Iterator, Sequence

from mlagentbench.analysis.compare import Comparison, Measure
from mlagentbench.analysis.leaderboard import Leaderboard, Placement
from mlagentbench.analysis.metrics import Cell, Estimate, Spend
from mlagentbench.formatting import format_duration, format_percent, strip_control_chars
from mlagentbench.terminal.lists import ListRow, show_table


def show_comparison(found: Comparison) -> None:
    """The answer first, then what it stands on."""
    print(summarize_comparison(found))
    print()
    show_table([_measure_row(measure) for measure in found.measures])
    print()
    rows = []
    for each in found.tasks:
        row: ListRow = {"task": strip_control_chars(each.task)}
        for side, cell in (("A", each.a), ("B", each.b)):
            row |= {f"{side} runs": cell.judged, f"{side} success": format_rate(cell.success_rate.value)}
            row |= {f"{side} improvement": format_percent(cell.improvement.value)}
        better = {"a": "A", "b": "B", "": "-"}[each.better]
        rows.append(
            row | {"p": f"{each.p_value:.3f}", "p, for all tasks": f"{each.adjusted:.3f}", "better": better}
        )
    show_table(rows)
    for words in found.left_out:
        print(strip_control_chars(f"left out: {words}"))
    for words in found.warnings:
        print(strip_control_chars(f"note: {words}"))


def summarize_comparison(found: Comparison) -> str:
    """Which is better, by how much, how sure, in a sentence."""
    first = found.measures[0]
    names = {
        "a": f"A, {found.a}, is better than B, {found.b}",
        "b": f"B, {found.b}, is better than A, {found.a}",
    }
    told = names.get(first.better, f"A, {found.a}, and B, {found.b}, cannot be told apart")
    tasks = f"{first.tasks} {'task' if first.tasks == 1 else 'tasks'}"
    return strip_control_chars(
        f"{told}: A minus B is {first.difference * 100:+.1f} points of success{_format_interval(first)} over {tasks};"
        f" the chance that A is better is {first.chance:.0%}."
    )


def _format_interval(measure: Measure) -> str:
    if measure.low is None or measure.high is None:
        return ""
    return f" (95 %: {measure.low * 100:+.1f} to {measure.high * 100:+.1f})"


def _measure_row(measure: Measure) -> ListRow:
    return {
        "mean over tasks": measure.name,
        "A": format_rate(measure.a),
        "B": format_rate(measure.b),
        "A minus B": f"{measure.difference * 100:+.1f}{_format_interval(measure)}",
        "A better": f"{measure.chance:.0%}",
        "tasks": measure.tasks,
    }


def format_rate(value: float | None) -> str:
    """A share of a hundred."""
    return "-" if value is None else f"{value * 100:.1f} %"


def show_leaderboard(found: Leaderboard, markdown: bool) -> None:
    """The table, and whatever must be known with it."""
    rows = [_leaderboard_row(place) for place in found.places]
    title = f"Edition {found.edition}, {len(found.tasks)} tasks: {', '.join(found.tasks)}"
    if markdown:
        print(f"{strip_control_chars(title)}\n")
        for line in markdown_lines(rows):
            print(line)
        print()
    else:
        print(strip_control_chars(title))
        show_table(rows)
    for place in found.places:
        for mark in place.notes:
            print(strip_control_chars(f"{'- ' if markdown else '* '}{place.agent}: {mark}"))
    for words in found.warnings:
        print(strip_control_chars(f"{'- ' if markdown else 'note: '}{words}"))


def _leaderboard_row(place: Placement) -> ListRow:
    cell = place.overall
    span = (
        ""
        if place.low is None
        else f"{place.low}"
        if place.low == place.high
        else f"{place.low} to {place.high}"
    )
    return {
        "rank": place.rank or "-",
        "95 %": span or "-",
        "entrant": strip_control_chars(place.agent) + (" *" if place.notes else ""),
        "success": _format_estimate(cell.success_rate),
        "paper's rule": format_rate(cell.improved_rate.value),
        "improvement": format_percent(cell.improvement.value),
        "valid": format_rate(cell.valid_rate.value),
        "runs": cell.runs,
        "faults": cell.faults,
        **_cost_columns(cell.per_run, cell),
    }


def _cost_columns(spend: Spend | None, cell: Cell) -> ListRow:
    per = cell.per_success
    return {
        "time a run": format_duration(spend.seconds) if spend else "-",
        "tokens a run": f"{spend.tokens:,.0f}" if spend else "-",
        "dollars a success": f"{per.dollars:.2f}" if per else "-",
    }


def _format_estimate(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return format_rate(estimate.value)
    return f"{format_rate(estimate.value)} ({estimate.low * 100:.0f} to {estimate.high * 100:.0f})"


def markdown_lines(rows: Sequence[ListRow]) -> Iterator[str]:
    """A table; nothing that an agent's author wrote can end a cell or be markup."""
    yield f"| {' | '.join(rows[0])} |"
    yield f"|{'---|' * len(rows[0])}"
    for row in rows:
        yield f"| {' | '.join(_escape_markdown(str(value)) for value in row.values())} |"


def _escape_markdown(text: str) -> str:
    marks = "\\`*_[]<>|"
    return "".join(f"\\{letter}" if letter in marks else letter for letter in text).replace("\n", " ")
