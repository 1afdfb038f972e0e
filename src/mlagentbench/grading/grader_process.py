"""python -m mlagentbench.grading.grader_process TASK SUBMISSION SOURCES PRIVATE ANSWER EARLIER: runs a grade.py."""

import ctypes
import json
import math
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from mlagentbench.errors import Fault, InvalidSubmission
from mlagentbench.grading.script_rules import NOT_ALL_CHECKED

PR_SET_PDEATHSIG = 1  # PR_SET_PDEATHSIG
RULE_CHECK_CPU_S = (
    60.0  # of processor time to look for broken rules in all scripts: far less than a grading may take
)
MAX_MESSAGE_CHARS = 1000  # characters of a sentence
MAX_VIOLATIONS = 50  # sentences on broken rules


def main(folder: Path, submission: Path, sources: Path, private: Path, answer: Path, earlier: Path) -> None:
    """Write the score, or whose fault it is that there is none."""
    grader = load_grader(folder)
    ran = sorted(earlier.iterdir(), key=lambda place: int(place.name))
    violations, *before = (
        _check_rules(grader, [sources, *ran]) if "violations" in grader else [[] for _ in (sources, *ran)]
    )
    report = {"violations": violations, "earlier": before}
    answer.write_text(json.dumps({**grade_submission(grader, submission, private), **report}))


def load_grader(folder: Path) -> dict[str, Any]:
    """The functions of a task's grade.py."""
    return runpy.run_path(str(folder / "grade.py"))


def grade_submission(grader: dict[str, Any], submission: Path, private: Path) -> dict[str, object]:
    """What the grader says of a submission."""
    try:
        score = float(grader["grade"](submission, private))
        if not math.isfinite(score):
            raise Fault(f"the grader returned {score}")
    except InvalidSubmission as error:
        return {"invalid": _to_message(error) or "the submission is invalid"}
    return {"score": score}


def _check_rules(grader: dict[str, Any], places: list[Path]) -> list[list[str]]:
    """What is against the rules in the scripts of each place.

    A process of its own looks: scripts that are too slow to look at, or break it, are told of and void nothing.
    """
    ours, theirs = os.pipe()
    own, child = os.getpid(), os.fork()
    if not child:
        _check_rules_in_fork(grader, places, own, theirs)
    os.close(theirs)
    with os.fdopen(ours, "rb") as lines:
        found = [json.loads(line) for line in lines if line.endswith(b"\n")]
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) > 0:
        sys.exit(1)  # the grader itself failed, and has said how
    return found + [[NOT_ALL_CHECKED]] * (len(places) - len(found))


def _check_rules_in_fork(grader: dict[str, Any], places: list[Path], parent: int, answers: int) -> NoReturn:
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the kernel ends it, wherever it is
        signal.setitimer(signal.ITIMER_PROF, RULE_CHECK_CPU_S)  # what it starts has the time of its own
        for place in places if os.getppid() == parent else ():
            os.write(answers, json.dumps(_call_violations(grader, place)).encode() + b"\n")
        code = 0
    except BaseException:  # noqa: BLE001 - a grader is anybody's code
        traceback.print_exc()
    finally:
        os._exit(code)  # whatever was raised: what follows is the parent's


def _call_violations(grader: dict[str, Any], sources: Path) -> list[str]:
    try:
        found = [_to_message(each) for each in grader["violations"](sources)]
    except InvalidSubmission as error:
        found = [_to_message(error)]
    return (
        found
        if len(found) <= MAX_VIOLATIONS
        else [*found[:MAX_VIOLATIONS], f"and {len(found) - MAX_VIOLATIONS:,} more of that kind"]
    )


def _to_message(said: object) -> str:
    """Words that any file can hold, though they may quote a submission."""
    return str(said).encode("utf-8", "backslashreplace").decode()[:MAX_MESSAGE_CHARS]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
