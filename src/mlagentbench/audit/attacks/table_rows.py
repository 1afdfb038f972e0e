"""Attack: malformed rows and ids."""

from mlagentbench.audit.context import Rows, to_csv
from mlagentbench.audit.table_attack import TableAttack


class TableRows(TableAttack):
    """Manipulates rows and ids: one known answer repeated, rows missing, doubled, unknown or out of order."""

    threats = (12, 13, 14)

    def build_variants(self, answers: Rows, constant: Rows) -> dict[str, bytes]:
        """One answer is known for certain; a join by id would count it many times."""
        header, *rows = answers
        known, wrong = rows[0], constant[1:]
        reversed_ids = [[other[0], *row[1:]] for row, other in zip(rows, rows[::-1], strict=True)]
        tables = {
            "one known row for every row": [header, *([known] * len(rows))],
            "one known row alone": [header, known],
            "correct values in order, ids in reverse order": [header, *reversed_ids],
            "no rows": [header],
            "each row twice": [header, *[row for row in wrong for _ in range(2)]],
            "correct rows after wrong rows": [header, *wrong, *rows],
            "a second table with correct values": [*constant, header, *rows],
            "unknown ids": [header, *([f"{row[0]}x", *row[1:]] for row in rows)],
            "each id twice, once with spaces": [
                header,
                *wrong,
                *([f" {row[0]} ", *row[1:]] for row in rows),
            ],
            "half of the rows": [header, *rows[: len(rows) // 2]],
            "an empty id": [header, *wrong[:-1], ["", *wrong[-1][1:]]],
            "extra columns with correct values": [
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
