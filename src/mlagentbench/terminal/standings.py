"""`compare` and `leaderboard`: who is better, by how much, how sure, for a terminal or as Markdown."""

from collections.abc import Iterator, Sequence

from mlagentbench.reports.compare import Comparison, Measure
from mlagentbench.reports.leaderboard import Leaderboard, Place
from mlagentbench.reports.metrics import Cell, Estimate, Spend
from mlagentbench.terminal.lists import Row, show_rows
from mlagentbench.words import duration, percent, plain


def show_comparison(found: Comparison) -> None:
    """The answer first, then what it stands on."""
    print(answer(found))
    print()
    show_rows([_measure(measure) for measure in found.measures])
    print()
    rows = []
    for each in found.tasks:
        row: Row = {"task": plain(each.task)}
        for side, cell in (("A", each.a), ("B", each.b)):
            row |= {f"{side} runs": cell.judged, f"{side} success": rate(cell.success_rate.value)}
            row |= {f"{side} improvement": percent(cell.improvement.value)}
        better = {"a": "A", "b": "B", "": "-"}[each.better]
        rows.append(row | {"p": f"{each.p_value:.3f}", "p, for all tasks": f"{each.adjusted:.3f}", "better": better})
    show_rows(rows)
    for words in found.left_out:
        print(plain(f"left out: {words}"))
    for words in found.warnings:
        print(plain(f"note: {words}"))


def answer(found: Comparison) -> str:
    """Which is better, by how much, how sure, in a sentence."""
    first = found.measures[0]
    names = {"a": f"A, {found.a}, is better than B, {found.b}", "b": f"B, {found.b}, is better than A, {found.a}"}
    told = names.get(first.better, f"A, {found.a}, and B, {found.b}, cannot be told apart")
    tasks = f"{first.tasks} {'task' if first.tasks == 1 else 'tasks'}"
    return plain(
        f"{told}: A minus B is {first.difference * 100:+.1f} points of success{_reach(first)} over {tasks};"
        f" the chance that A is better is {first.chance:.0%}."
    )


def _reach(measure: Measure) -> str:
    if measure.low is None or measure.high is None:
        return ""
    return f" (95 %: {measure.low * 100:+.1f} to {measure.high * 100:+.1f})"


def _measure(measure: Measure) -> Row:
    return {
        "mean over tasks": measure.name,
        "A": rate(measure.a),
        "B": rate(measure.b),
        "A minus B": f"{measure.difference * 100:+.1f}{_reach(measure)}",
        "A better": f"{measure.chance:.0%}",
        "tasks": measure.tasks,
    }


def rate(value: float | None) -> str:
    """A share of a hundred."""
    return "-" if value is None else f"{value * 100:.1f} %"


def show_leaderboard(found: Leaderboard, markdown: bool) -> None:
    """The table, and whatever must be known with it."""
    rows = [_row(place) for place in found.places]
    title = f"Edition {found.edition}, {len(found.tasks)} tasks: {', '.join(found.tasks)}"
    if markdown:
        print(f"{plain(title)}\n")
        for line in in_markdown(rows):
            print(line)
        print()
    else:
        print(plain(title))
        show_rows(rows)
    for place in found.places:
        for mark in place.marks:
            print(plain(f"{'- ' if markdown else '* '}{place.who}: {mark}"))
    for words in found.warnings:
        print(plain(f"{'- ' if markdown else 'note: '}{words}"))


def _row(place: Place) -> Row:
    cell = place.overall
    span = "" if place.low is None else f"{place.low}" if place.low == place.high else f"{place.low} to {place.high}"
    return {
        "rank": place.rank or "-",
        "95 %": span or "-",
        "entrant": plain(place.who) + (" *" if place.marks else ""),
        "success": _with_interval(cell.success_rate),
        "paper's rule": rate(cell.improved_rate.value),
        "improvement": percent(cell.improvement.value),
        "valid": rate(cell.valid_rate.value),
        "runs": cell.runs,
        "faults": cell.faults,
        **_spent(cell.per_run, cell),
    }


def _spent(spend: Spend | None, cell: Cell) -> Row:
    per = cell.per_success
    return {
        "time a run": duration(spend.seconds) if spend else "-",
        "tokens a run": f"{spend.tokens:,.0f}" if spend else "-",
        "dollars a success": f"{per.dollars:.2f}" if per else "-",
    }


def _with_interval(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return rate(estimate.value)
    return f"{rate(estimate.value)} ({estimate.low * 100:.0f} to {estimate.high * 100:.0f})"


def in_markdown(rows: Sequence[Row]) -> Iterator[str]:
    """A table; nothing that an agent's author wrote can end a cell or be markup."""
    yield f"| {' | '.join(rows[0])} |"
    yield f"|{'---|' * len(rows[0])}"
    for row in rows:
        yield f"| {' | '.join(_escaped(str(value)) for value in row.values())} |"


def _escaped(text: str) -> str:
    marks = "\\`*_[]<>|"
    return "".join(f"\\{letter}" if letter in marks else letter for letter in text).replace("\n", " ")
