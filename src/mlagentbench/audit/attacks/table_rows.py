"""Attack: table rows."""

from mlagentbench.audit.context import Rows, to_csv
from mlagentbench.audit.table_attack import TableAttack


class TableRows(TableAttack):
    """Plays with rows and ids: one known answer many times, rows left out, doubled, unknown or matched by position."""

    threats = (12, 13, 14)

    def build_variants(self, answers: Rows, clueless: Rows) -> dict[str, bytes]:
        """One answer is known for certain, which a join by id would count again and again."""
        header, *rows = answers
        known, wrong = rows[0], clueless[1:]
        turned = [[other[0], *row[1:]] for row, other in zip(rows, rows[::-1], strict=True)]
        tables = {
            "one right id for every row": [header, *([known] * len(rows))],
            "one right row alone": [header, known],
            "right values in their order, under the ids from the other end": [header, *turned],
            "no rows": [header],
            "each row twice": [header, *[row for each in wrong for row in (each, each)]],
            "right rows after wrong ones": [header, *wrong, *rows],
            "a second table with right values": [*clueless, header, *rows],
            "unknown ids": [header, *([f"{row[0]}x", *row[1:]] for row in rows)],
            "ids with spaces, so that each is there twice": [
                header,
                *wrong,
                *([f" {row[0]} ", *row[1:]] for row in rows),
            ],
            "half of the rows": [header, *rows[: len(rows) // 2]],
            "an empty id": [header, *wrong[:-1], ["", *wrong[-1][1:]]],
            "more columns, with right values": [
                [*header, *(f"{name}_true" for name in header[1:])],
                *([*row, *right[1:]] for row, right in zip(wrong, rows, strict=True)),
            ],
            "every column twice": [
                [*header, *header[1:]],
                *([*row, *right[1:]] for row, right in zip(wrong, rows, strict=True)),
            ],
            "no header": wrong,
            "an index before the ids": [["", *header], *([str(n), *row] for n, row in enumerate(wrong))],
        }
        return {name: to_csv(table).encode() for name, table in tables.items()}
