"""python -m mlagentbench.grading.child TASK SUBMISSION SOURCES PRIVATE ANSWER EARLIER: runs a grade.py."""

import json
import math
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

from mlagentbench.errors import Fault, InvalidSubmission

Rules = Callable[[Path], list[str]]
LONGEST = 1000  # characters of a sentence


def main(folder: Path, submission: Path, sources: Path, private: Path, answer: Path, earlier: Path) -> None:
    """Write the score, or whose fault it is that there is none."""
    grader = runpy.run_path(str(folder / "grade.py"))
    report: dict[str, object] = {}
    rules: Rules = grader.get("violations", lambda sources: [])
    ran = sorted(earlier.iterdir(), key=lambda place: int(place.name))
    report["earlier"] = [_broken(rules, each) for each in ran]
    try:
        report["violations"] = _broken(rules, sources)
        score = float(grader["grade"](submission, private))
        if not math.isfinite(score):
            raise Fault(f"the grader returned {score}")
        report["score"] = score
    except InvalidSubmission as error:
        report["invalid"] = _sentence(error) or "the submission is invalid"
    answer.write_text(json.dumps(report))


def _broken(rules: Rules, sources: Path) -> list[str]:
    return [_sentence(found) for found in rules(sources)]


def _sentence(said: object) -> str:
    """Words that any file can hold, though they may quote a submission."""
    return str(said).encode("utf-8", "backslashreplace").decode()[:LONGEST]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
