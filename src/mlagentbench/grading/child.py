"""python -m mlagentbench.grading.child TASK SUBMISSION SOURCES PRIVATE ANSWER EARLIER: runs a grade.py."""

import json
import math
import runpy
import sys
from pathlib import Path
from typing import Any

from mlagentbench.errors import Fault, InvalidSubmission

LONGEST = 1000  # characters of a sentence
MOST = 50  # sentences on broken rules


def main(folder: Path, submission: Path, sources: Path, private: Path, answer: Path, earlier: Path) -> None:
    """Write the score, or whose fault it is that there is none."""
    grader = load(folder)
    ran = sorted(earlier.iterdir(), key=lambda place: int(place.name))
    before = [_broken(grader, each) for each in ran]
    answer.write_text(json.dumps({**asked(grader, submission, private, sources), "earlier": before}))


def load(folder: Path) -> dict[str, Any]:
    """The functions of a task's grade.py."""
    return runpy.run_path(str(folder / "grade.py"))


def asked(grader: dict[str, Any], submission: Path, private: Path, sources: Path | None = None) -> dict[str, object]:
    """What the grader says of a submission, and of the scripts beside it if they are given."""
    report: dict[str, object] = {}
    try:
        if sources:
            report["violations"] = _broken(grader, sources)
        score = float(grader["grade"](submission, private))
        if not math.isfinite(score):
            raise Fault(f"the grader returned {score}")
        report["score"] = score
    except InvalidSubmission as error:
        report["invalid"] = _sentence(error) or "the submission is invalid"
    return report


def _broken(grader: dict[str, Any], sources: Path) -> list[str]:
    """What in these scripts is against the rules, if the task has any that can be seen."""
    found = [_sentence(each) for each in grader["violations"](sources)] if "violations" in grader else []
    return found if len(found) <= MOST else [*found[:MOST], f"and {len(found) - MOST:,} more of that kind"]


def _sentence(said: object) -> str:
    """Words that any file can hold, though they may quote a submission."""
    return str(said).encode("utf-8", "backslashreplace").decode()[:LONGEST]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
