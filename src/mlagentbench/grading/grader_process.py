"""Runs a task's grade.py in its own process.

Usage: python -m mlagentbench.grading.grader_process TASK SUBMISSION SOURCES PRIVATE ANSWER EARLIER
"""

import json
import math
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from mlagentbench.errors import Fault, InvalidSubmission
from mlagentbench.grading.script_rules import NOT_ALL_CHECKED
from mlagentbench.system.author_errors import format_own_traceback, locate_error
from mlagentbench.system.spawn import set_parent_death_signal

RULE_CHECK_CPU_S = 60.0  # CPU time for checking the rules in all scripts: far less than grading may take
MAX_MESSAGE_CHARS = 1000
MAX_VIOLATIONS = 50  # messages per checked folder


def main(folder: Path, submission: Path, sources: Path, private: Path, answer: Path, earlier: Path) -> None:
    """Load the grader and write the grade of a submission to `answer`."""
    try:
        write_grade(load_grader(folder), private, submission, answer, sources, earlier)
    except Exception as error:  # noqa: BLE001 - a task's grader may raise anything
        sys.exit(_describe_error(error, folder))


def write_grade(
    grader: dict[str, Any],
    private: Path,
    submission: Path,
    answer: Path,
    sources: Path | None = None,
    earlier: Path | None = None,
) -> None:
    """Write the score, or why the submission is invalid, and all rule violations to `answer`.

    Args:
        grader: What `load_grader` returned.
        private: The folder with the hidden answers.
        submission: What is graded.
        answer: The file to write.
        sources: The agent's final scripts; without them, the task's rules are not checked.
        earlier: A folder with one numbered folder for each script that ran before.
    """
    report: dict[str, object] = {}
    if sources and earlier:
        executed = sorted(earlier.iterdir(), key=lambda path: int(path.name))
        checked = [sources, *executed]
        has_rules = "violations" in grader
        violations, *before = _check_rules(grader, checked) if has_rules else [[] for _ in checked]
        report = {"violations": violations, "earlier": before}
    answer.write_text(json.dumps({**grade_submission(grader, submission, private), **report}))


def _describe_error(error: BaseException, folder: Path) -> str:
    """The traceback of the grader's own code, and the error in one line."""
    return f"{format_own_traceback(error, folder)}{locate_error(error, folder)}"


def load_grader(folder: Path) -> dict[str, Any]:
    """Run a task's grade.py and return its module namespace."""
    return runpy.run_path(str(folder / "grade.py"))


def grade_submission(grader: dict[str, Any], submission: Path, private: Path) -> dict[str, object]:
    """Call the grader's `grade`; return {"score": …}, or {"invalid": …} with the reason."""
    try:
        score = float(grader["grade"](submission, private))
        if not math.isfinite(score):
            raise Fault(f"the grader returned {score}")
    except InvalidSubmission as error:
        return {"invalid": _to_message(error) or "the submission is invalid"}
    return {"score": score}


def _check_rules(grader: dict[str, Any], folders: list[Path]) -> list[list[str]]:
    """Return the rule violations in the scripts of each folder.

    The check runs in a forked process: scripts that make it too slow, or crash it, are reported as unchecked
    and do not void the run.
    """
    read_end, write_end = os.pipe()
    parent, child = os.getpid(), os.fork()
    if not child:
        _check_rules_in_fork(grader, folders, parent, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as lines:
        violations = [json.loads(line) for line in lines if line.endswith(b"\n")]
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) > 0:
        sys.exit(1)  # the grader itself failed, and its traceback is already on stderr
    return violations + [[NOT_ALL_CHECKED]] * (len(folders) - len(violations))


def _check_rules_in_fork(
    grader: dict[str, Any], folders: list[Path], parent: int, write_end: int
) -> NoReturn:
    code = 1
    try:
        set_parent_death_signal()
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the kernel kills the process, whatever it is doing
        signal.setitimer(signal.ITIMER_PROF, RULE_CHECK_CPU_S)  # counts this process only, not its children
        for folder in folders if os.getppid() == parent else ():
            os.write(write_end, json.dumps(_call_violations(grader, folder)).encode() + b"\n")
        code = 0
    except BaseException as error:  # noqa: BLE001 - a task's grader may raise anything
        print(_describe_error(error, Path(grader["__file__"]).parent), file=sys.stderr, flush=True)
    finally:
        os._exit(code)  # never return into the code of the parent, whatever was raised


def _call_violations(grader: dict[str, Any], sources: Path) -> list[str]:
    try:
        messages = [_to_message(violation) for violation in grader["violations"](sources)]
    except InvalidSubmission as error:
        messages = [_to_message(error)]
    if len(messages) <= MAX_VIOLATIONS:
        return messages
    return [*messages[:MAX_VIOLATIONS], f"and {len(messages) - MAX_VIOLATIONS:,} more violations"]


def _to_message(value: object) -> str:
    """Make text that any file can hold, even if it quotes invalid Unicode of a submission."""
    return str(value).encode("utf-8", "backslashreplace").decode()[:MAX_MESSAGE_CHARS]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
