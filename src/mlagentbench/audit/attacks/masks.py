"""Attack: masks."""

from mlagentbench.audit.context import Rows, to_csv
from mlagentbench.audit.table_attack import TableAttack
from mlagentbench.task import Task

FULL_MASK = "1 4000"


class Masks(TableAttack):
    """Hands in run lengths that overlap, leave the image, go backwards or claim everything and nothing."""

    threats = (15,)

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether masks are submitted."""
        return task.name == "identify-contrails"

    def build_variants(self, answers: Rows, clueless: Rows) -> dict[str, bytes]:
        """One mask for every image, or the right one spoilt."""
        header, *rows = answers
        masks = {
            "nothing anywhere": "-",
            "everything": FULL_MASK,
            "overlapping": "1 100 50 100 50 100",
            "out of the image": "1 999999999",
            "a start of zero": "0 10",
            "negative": "-5 10",
            "backwards": "500 5 100 5",
            "without an end": "1 2 3",
            "empty": "",
            "not whole": "1.5 2",
            "endless": "1 " + "9" * 50,
        }
        tables = {name: [header, *([row[0], mask] for row in rows)] for name, mask in masks.items()}
        doubled = [[row[0], f"{row[1]} {row[1]}" if row[1] != "-" else "-"] for row in rows]
        tables["every right mask twice"] = [header, *doubled]
        return {name: to_csv(table).encode() for name, table in tables.items()}
