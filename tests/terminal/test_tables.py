"""Tables in a terminal and in a pipe: nothing is lost, and nothing in a cell controls the terminal."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from mlagentbench.terminal.lists import MAX_CELL_CHARS, collect_rows, show_list, show_table

ROWS: list[dict[str, Any]] = [
    {"name": "short", "what_it_does": "reads a file", "runs": 3},
    {"name": "[bold]x[/] :smile:\x1b[2J\u202e", "what_it_does": "w" * 60, "runs": 12},
    {"name": "模型", "what_it_does": None, "runs": 0},
]


class Terminal:
    """A standard output that claims to be a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        """Nothing is buffered."""

    def isatty(self) -> bool:
        return True


def show_in_terminal(
    monkeypatch: pytest.MonkeyPatch,
    rows: list[dict[str, Any]],
    columns: int,
    show: Callable[[list[dict[str, Any]]], None] = show_table,
) -> list[str]:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal)
    show(rows)
    return terminal.text.splitlines()


def test_in_a_pipe_every_row_is_one_line_however_long_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([*ROWS, {"name": "y" * 90, "what_it_does": "z" * 90, "runs": 1}])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 4 and max(map(len, lines)) > 180
    assert lines[0].split() == ["name", "what", "it", "does", "runs"]
    assert all(line == line.rstrip() for line in lines)


def test_markup_in_a_cell_is_printed_literally_and_a_missing_value_is_a_dash(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_table(ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].startswith("[bold]x[/] :smile:  " + "w" * 60)
    assert not set("\x1b\u202e") & set("".join(lines))
    assert lines[4].split() == ["模型", "-", "0"]


def test_a_very_long_cell_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([{"name": "x" * 500}])
    assert capsys.readouterr().out.splitlines()[-1] == "x" * (MAX_CELL_CHARS - 1) + "…"


def test_an_empty_table_is_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([])
    assert capsys.readouterr().out == "none\n"


@pytest.mark.parametrize("columns", [40, 60])
def test_a_narrow_terminal_wraps_cells_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    words = "one two three four five six seven eight nine ten eleven twelve"
    lines = show_in_terminal(monkeypatch, [{"name": "short", "what_it_does": words, "runs": 3}], columns)
    assert max(map(len, lines)) <= columns and len(lines) > 3
    assert set(words.split()) <= set(" ".join(lines).split())


def test_a_terminal_that_is_too_narrow_for_all_columns_still_shows_every_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = {f"column_{number}": f"value-{number}" for number in range(12)}
    text = "\n".join(show_in_terminal(monkeypatch, [row], 20))
    assert all(value in text for value in row.values())


@pytest.mark.parametrize(("columns", "left_out"), [(80, "ceiling"), (120, "open edition"), (300, "")])
def test_the_list_of_tasks_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, left_out: str
) -> None:
    lines = show_in_terminal(monkeypatch, collect_rows("tasks"), columns, show_list)
    assert max(map(len, lines[:-1])) <= columns
    for name in ("house-price", "identify-contrails", "starter", "reference"):
        assert any(name in line for line in lines)
    if left_out:
        assert lines[-1].startswith("Not shown in this terminal: paper edition") and left_out in lines[-1]
    else:
        assert "Not shown" not in lines[-1]
