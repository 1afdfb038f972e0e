"""Tables as files: csv and json of each, and those of the paper's layout as markdown and LaTeX as well."""

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
    """Rows of plain values, for programs."""

    name: str
    title: str
    rows: Sequence[TableRow]

    def files(self, about: str) -> dict[str, bytes]:
        """Names and contents; `about` says what all figures rest on."""
        return {f"{self.name}.csv": self._to_csv(), f"{self.name}.json": self._to_json(about)}

    def _to_csv(self) -> bytes:
        target = io.StringIO()
        heads = list(dict.fromkeys(key for row in self.rows for key in row))
        writer = csv.DictWriter(target, heads, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return target.getvalue().encode(errors="backslashreplace")

    def _to_json(self, about: str) -> bytes:
        told: dict[str, Any] = {"title": self.title, "about": about, "rows": list(self.rows)}
        return (json.dumps(told, indent=1) + "\n").encode()


def to_markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], about: str) -> bytes:
    """A table as GitHub reads it, its first column text."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    text = "\n".join(
        "| " + " | ".join(_to_visible_line(cell).replace("|", "\\|") for cell in line) + " |"
        for line in lines
    )
    return f"{text}\n\n{_to_visible_line(about)}\n".encode()


def to_latex(
    groups: Sequence[tuple[str, int]], heads: Sequence[str], rows: Sequence[Sequence[str]], about: str
) -> bytes:
    """A table for a paper that uses booktabs; groups of columns have a heading, the last row is set apart."""
    over, rules, column = [""], [], 2
    for name, count in groups:
        over.append(f"\\multicolumn{{{count}}}{{c}}{{{escape_latex(name)}}}")
        rules.append(f"\\cmidrule(lr){{{column}-{column + count - 1}}}")
        column += count
    body = [" & ".join(map(escape_latex, row)) + r" \\" for row in rows]
    lines = [
        f"% {_to_visible_line(about)}",
        r"\begin{tabular}{l" + "r" * (len(heads) - 1) + "}",
        r"\toprule",
        " & ".join(over) + r" \\",
        *rules,
        " & ".join(map(escape_latex, heads)) + r" \\",
        r"\midrule",
        *body[:-1],
        r"\midrule",
        *body[-1:],
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([*lines, ""]).encode(errors="backslashreplace")


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return _to_visible_line(text).translate(LATEX_ESCAPES).replace("–", "--").replace("−", "$-$")


def _to_visible_line(text: str) -> str:
    """On one line, whatever it holds."""
    return " ".join(reveal_invisible_chars(text).split())
