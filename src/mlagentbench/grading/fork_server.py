"""python -m mlagentbench.grading.fork_server TASK PRIVATE: loads a grade.py once, forks for each submission.

This process itself never opens a submission, so that none can leave anything behind for the next.
"""

import ctypes
import gc
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from mlagentbench.grading.grader_process import PR_SET_PDEATHSIG, grade_submission, load_grader

DONE, FAILED = b"+", b"-"


def main(folder: Path, private: Path) -> None:
    """An order is a line: submission, and where the answer goes. After each, a byte tells whether there is one."""
    orders, replies = os.dup(0), os.dup(1)
    silence = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):  # whatever a grader prints is no reply
        os.dup2(silence, fd)
    grader, libc, own = load_grader(folder), ctypes.CDLL(None), os.getpid()
    with suppress(Exception):
        grade_submission(
            grader, folder / "no submission", private
        )  # what is loaded late is loaded here, once for all forks
    gc.freeze()  # what forks share stays shared
    gc.disable()  # a fork ends before there is anything to collect
    with os.fdopen(orders) as lines:
        for line in lines:
            submission, answer = map(Path, json.loads(line))
            child = os.fork()
            if not child:
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                for fd in (orders, replies):  # only the parent speaks with the harness
                    os.close(fd)
                if os.getppid() == own:
                    _write_grade(grader, submission, private, answer)
                os._exit(1)
            os.write(replies, DONE if os.waitpid(child, 0)[1] == 0 else FAILED)


def _write_grade(grader: dict[str, Any], submission: Path, private: Path, answer: Path) -> NoReturn:
    code = 1
    try:
        os.chdir(answer.parent)  # what a grader leaves where it works is gone before the next begins
        answer.write_text(json.dumps(grade_submission(grader, submission, private)))
        code = 0
    finally:
        os._exit(code)  # whatever was raised: the loop above is the parent's


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
