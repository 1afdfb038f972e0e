"""python -m mlagentbench.grading.child TASK SUBMISSION PRIVATE ANSWER: runs one grade.py in a process of its own."""

import json
import math
import runpy
import sys
from pathlib import Path

from mlagentbench.errors import Fault, InvalidSubmission


def main(folder: Path, submission: Path, private: Path, answer: Path) -> int:
    """Write the score, or whose fault it is that there is none."""
    grader = runpy.run_path(str(folder / "grade.py"))
    report: dict[str, object] = {}
    try:
        if "violations" in grader:
            report["violations"] = list(grader["violations"](submission))
        score = float(grader["grade"](submission, private))
        if not math.isfinite(score):
            raise Fault(f"the grader returned {score}")
        report["score"] = score
    except InvalidSubmission as error:
        report["invalid"] = str(error)
    answer.write_text(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
