"""Tables as files: CSV and JSON for all, Markdown and LaTeX for those in the layout of the paper."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlagentbench.pages.layout.invisible_chars import reveal_invisible_chars

TableRow = Mapping[str, Any]
LATEX_ESCAPES = str.maketrans(
    {char: f"\\{char}" for char in "&%$#_{}"}
    | {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
)


@dataclass(frozen=True)
class DataTable:
    """Rows of plain values for other programs."""

    name: str
    title: str
    rows: Sequence[TableRow]

    def files(self, about: str) -> dict[str, bytes]:
        """File names and contents; `about` says what the numbers are based on."""
        return {f"{self.name}.csv": self._to_csv(), f"{self.name}.json": self._to_json(about)}

    def _to_csv(self) -> bytes:
        target = io.StringIO()
        headers = list(dict.fromkeys(key for row in self.rows for key in row))
        writer = csv.DictWriter(target, headers, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return target.getvalue().encode(errors="backslashreplace")

    def _to_json(self, about: str) -> bytes:
        content: dict[str, Any] = {"title": self.title, "about": about, "rows": list(self.rows)}
        return (json.dumps(content, indent=1) + "\n").encode()


def to_markdown(headers: Sequence[str], rows: Sequence[Sequence[str]], about: str) -> bytes:
    """A GitHub Markdown table; the first column is left-aligned, the others right-aligned."""
    alignments = ["---", *["---:"] * (len(headers) - 1)]
    lines = [
        "| " + " | ".join(_to_visible_line(cell).replace("|", "\\|") for cell in cells) + " |"
        for cells in (headers, alignments, *rows)
    ]
    return "\n".join([*lines, "", _to_visible_line(about), ""]).encode()


def to_latex(
    groups: Sequence[tuple[str, int]], headers: Sequence[str], rows: Sequence[Sequence[str]], about: str
) -> bytes:
    """A booktabs table; `groups` are headings over several columns, and the last row follows a rule."""
    group_cells, rules, column = [""], [], 2
    for name, count in groups:
        group_cells.append(f"\\multicolumn{{{count}}}{{c}}{{{escape_latex(name)}}}")
        rules.append(f"\\cmidrule(lr){{{column}-{column + count - 1}}}")
        column += count
    body = [" & ".join(map(escape_latex, row)) + r" \\" for row in rows]
    lines = [
        f"% {_to_visible_line(about)}",
        r"\begin{tabular}{l" + "r" * (len(headers) - 1) + "}",
        r"\toprule",
        " & ".join(group_cells) + r" \\",
        *rules,
        " & ".join(map(escape_latex, headers)) + r" \\",
        r"\midrule",
        *body[:-1],
        r"\midrule",
        *body[-1:],
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([*lines, ""]).encode(errors="backslashreplace")


def escape_latex(text: str) -> str:
    """Escape text so that LaTeX prints it literally."""
    return _to_visible_line(text).translate(LATEX_ESCAPES).replace("–", "--").replace("−", "$-$")


def _to_visible_line(text: str) -> str:
    """Text on one line, with invisible characters made visible."""
    return " ".join(reveal_invisible_chars(text).split())
