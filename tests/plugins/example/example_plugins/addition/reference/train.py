"""Submit the sums."""

import csv
from pathlib import Path

with Path("questions.csv").open() as file:
    sums = {row["id"]: int(row["a"]) + int(row["b"]) for row in csv.DictReader(file)}
Path("submission.csv").write_text("id,sum\n" + "".join(f"{id},{value}\n" for id, value in sums.items()))
