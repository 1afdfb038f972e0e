"""Attack: malformed run-length masks."""

from mlagentbench.audit.context import Rows, to_csv
from mlagentbench.audit.table_attack import TableAttack

FULL_MASK = "1 4000"


class Masks(TableAttack):
    """Submits run lengths that overlap, leave the image, go backwards or mark everything or nothing."""

    trait = "run_length_masks"
    threats = (15,)

    def build_variants(self, answers: Rows, constant: Rows) -> dict[str, bytes]:
        """The same mask for every image, or the correct masks doubled."""
        header, *rows = answers
        masks = {
            "nothing anywhere": "-",
            "everything": FULL_MASK,
            "overlapping": "1 100 50 100 50 100",
            "out of the image": "1 999999999",
            "a start of zero": "0 10",
            "negative": "-5 10",
            "backwards": "500 5 100 5",
            "odd number of values": "1 2 3",
            "empty": "",
            "not an integer": "1.5 2",
            "huge length": "1 " + "9" * 50,
        }
        tables = {name: [header, *([row[0], mask] for row in rows)] for name, mask in masks.items()}
        doubled = [[row[0], f"{row[1]} {row[1]}" if row[1] != "-" else "-"] for row in rows]
        tables["every correct mask twice"] = [header, *doubled]
        return {name: to_csv(table).encode() for name, table in tables.items()}
