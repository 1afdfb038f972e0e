"""Submit 0 for every row."""

import csv
import os
from pathlib import Path

with Path("questions.csv").open() as file:
    ids = [row["id"] for row in csv.DictReader(file)]
Path("submission.csv").write_text("id,sum\n" + "".join(f"{id},0\n" for id in ids))
print("sandbox:", os.environ.get("SANDBOX"))
