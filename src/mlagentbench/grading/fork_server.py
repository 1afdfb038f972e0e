"""Loads a task's grade.py once and forks a process to grade each submission.

Usage: python -m mlagentbench.grading.fork_server TASK PRIVATE

The server process itself never opens a submission, so no submission can affect the grading of the next. It
exits when it had no request for a while, and when a file that the grader has read was changed.
`GraderServer` in grader_pool.py is its client.
"""

import gc
import json
import os
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from mlagentbench.grading.grader_process import load_grader, write_grade
from mlagentbench.grading.loaded_files import LoadedFiles
from mlagentbench.system.spawn import set_parent_death_signal

DONE, FAILED = b"+", b"-"
OUTDATED_EXIT_CODE = 3  # of a fork that finds that the server has to be started again
IDLE_TIMEOUT_S = 60


def main(folder: Path, private: Path) -> None:
    """Serve requests from stdin: each line is a JSON object with the arguments of `write_grade`.

    After each request one byte on stdout, DONE or FAILED, says whether the answer was written.
    """
    requests, replies = os.dup(0), os.dup(1)
    devnull = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):  # what a grader prints must not be taken for a reply
        os.dup2(devnull, fd)
    files, parent = LoadedFiles([folder, private]), os.getpid()
    with files.record():
        grader = load_grader(folder)
        # A first call reads the answers and triggers lazy imports here, once for all forks.
        with suppress(Exception):
            grader["grade"](folder / "no submission", private)
    gc.freeze()  # keep memory pages shared with the forks
    gc.disable()  # a fork ends before there is anything to collect
    with os.fdopen(requests, "rb") as lines:
        while select.select([lines], [], [], IDLE_TIMEOUT_S)[0] and (line := lines.readline()):
            child = os.fork()
            if not child:
                set_parent_death_signal()
                for fd in (requests, replies):  # only the parent communicates with the harness
                    os.close(fd)
                if os.getppid() == parent:
                    _answer_request(line, grader, private, files)
                os._exit(1)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code == OUTDATED_EXIT_CODE:
                return
            os.write(replies, FAILED if code else DONE)


def _answer_request(line: bytes, grader: dict[str, Any], private: Path, files: LoadedFiles) -> NoReturn:
    """Write the grade. All else is done here too: pages that the server writes to are copied at each fork."""
    code = 1
    try:
        if files.have_changed:
            os._exit(OUTDATED_EXIT_CODE)
        paths = {name: Path(path) for name, path in json.loads(line).items()}
        os.chdir(paths["answer"].parent)  # what a grader leaves in its working directory is removed with it
        write_grade(grader, private=private, **paths)
        code = 0
    finally:
        os._exit(code)  # never return into the parent's loop, whatever was raised


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
