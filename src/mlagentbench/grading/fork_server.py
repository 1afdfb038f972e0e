"""Loads a task's grade.py once and forks a process to grade each submission.

Usage: python -m mlagentbench.grading.fork_server TASK PRIVATE

The server process itself never opens a submission, so no submission can affect the grading of the next.
"""

import gc
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from mlagentbench.grading.grader_process import grade_submission, load_grader
from mlagentbench.system.spawn import set_parent_death_signal

DONE, FAILED = b"+", b"-"


def main(folder: Path, private: Path) -> None:
    """Serve requests from stdin: each line is a JSON pair of the submission and the path for the answer.

    After each request one byte on stdout, DONE or FAILED, says whether the answer was written.
    """
    requests, replies = os.dup(0), os.dup(1)
    devnull = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):  # what a grader prints must not be taken for a reply
        os.dup2(devnull, fd)
    grader, parent = load_grader(folder), os.getpid()
    # A first call triggers lazy imports here, once for all forks.
    with suppress(Exception):
        grade_submission(grader, folder / "no submission", private)
    gc.freeze()  # keep memory pages shared with the forks
    gc.disable()  # a fork ends before there is anything to collect
    with os.fdopen(requests) as lines:
        for line in lines:
            submission, answer = map(Path, json.loads(line))
            child = os.fork()
            if not child:
                set_parent_death_signal()
                for fd in (requests, replies):  # only the parent communicates with the harness
                    os.close(fd)
                if os.getppid() == parent:
                    _write_grade(grader, submission, private, answer)
                os._exit(1)
            os.write(replies, DONE if os.waitpid(child, 0)[1] == 0 else FAILED)


def _write_grade(grader: dict[str, Any], submission: Path, private: Path, answer: Path) -> NoReturn:
    code = 1
    try:
        os.chdir(answer.parent)  # files that a grader leaves in its working directory are removed afterwards
        answer.write_text(json.dumps(grade_submission(grader, submission, private)))
        code = 0
    finally:
        os._exit(code)  # never return into the parent's loop, whatever was raised


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
