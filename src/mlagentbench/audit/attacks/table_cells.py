"""Attack: malformed cells."""

from mlagentbench.audit.context import Rows, to_csv
from mlagentbench.audit.table_attack import TableAttack

CELL_VALUES = (
    *(
        "nan",
        "inf",
        "",
        "-inf",
        "1e308",
        "-1e308",
        "=A1",
        '=HYPERLINK("http://localhost/","x")',
        "+1+1",
        "@SUM(1)",
    ),
    *(
        "None",
        "true",
        "0x10",
        "1_000",
        "१२",
        "1,5",
        '"1\n2"',
        "\x00",
        "__import__('os').system('id')",
        "9" * 60,
    ),
)


class TableCells(TableAttack):
    """Fills cells with values that a careless grader would skip, count as correct, execute or fail on."""

    threats = (13, 20)

    def build_variants(self, answers: Rows, constant: Rows) -> dict[str, bytes]:
        """Each value in all cells, or in one row only."""
        header, *rows = constant
        everywhere = {
            f"{cell!r} everywhere": [header, *([row[0], *[cell] * (len(row) - 1)] for row in rows)]
            for cell in CELL_VALUES
        }
        once = {
            f"{cell!r} once": [header, *rows[:-1], [rows[-1][0], *[cell] * (len(header) - 1)]]
            for cell in CELL_VALUES[:5]
        }
        return {name: to_csv(table).encode() for name, table in (everywhere | once).items()}
