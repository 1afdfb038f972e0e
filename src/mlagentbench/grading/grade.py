"""Grades what an agent left, in a process that the agent never shared."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlagentbench.errors import InvalidSubmission, TaskFault
from mlagentbench.preparation.prepare import Prepared
from mlagentbench.records import Record
from mlagentbench.sandbox.choose import unprivileged_user
from mlagentbench.task import Task
from mlagentbench.workspace.store import Store

PACKAGE = Path(__file__).parents[2]


class Grade(Record):
    """What the grader says of one submission."""

    score: float | None = None
    invalid: str = ""
    violations: tuple[str, ...] = ()
    seconds: float = 0.0


def grade(task: Task, data: Prepared, store: Store, step: int, sandbox: str) -> Grade:
    """The grade of the workspace as it was after a step; a crash of the grader is a TaskFault, and never a zero."""
    started = time.monotonic()
    with _submission(task, store, step) as submission:
        if isinstance(submission, InvalidSubmission):
            return Grade(invalid=str(submission))
        found = _ask_child(task, submission, data.private, sandbox)
    return found.but(seconds=round(time.monotonic() - started, 3))


@contextmanager
def _submission(task: Task, store: Store, step: int) -> Iterator[Path | InvalidSubmission]:
    """A fresh copy of what is graded, or why there is none."""
    with tempfile.TemporaryDirectory(prefix="mlagentbench-grade-") as folder:
        wanted = task.config.submission
        if wanted == ".":
            target = Path(folder, "submission")
            target.mkdir()
            store.restore(step, target, owner=unprivileged_user("grading"))
            yield target
            return
        entry = store.state(step).get(wanted)
        if entry is None:
            yield InvalidSubmission(f"{wanted} is missing")
        elif entry.kind != "file":
            yield InvalidSubmission(f"{wanted} is a {entry.kind}, not a file")
        else:
            target = Path(folder, Path(wanted).name)
            store.export(step, wanted, target)
            yield target


def _ask_child(task: Task, submission: Path, private: Path, sandbox: str) -> Grade:
    with tempfile.TemporaryDirectory(prefix="mlagentbench-answer-") as folder:
        answer = Path(folder, "answer.json")
        paths = [str(path) for path in (task.folder, submission, private, answer)]
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(PACKAGE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MLAGENTBENCH_GRADING": json.dumps({"runtime": task.config.runtime, "sandbox": sandbox}),
        }
        if "MLAGENTBENCH_HOME" in os.environ:
            environment["MLAGENTBENCH_HOME"] = os.environ["MLAGENTBENCH_HOME"]
        try:
            child = subprocess.run(
                [sys.executable, "-P", "-m", "mlagentbench.grading.child", *paths],
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=task.config.grading_minutes * 60,
                env=environment,
                cwd=folder,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TaskFault(f"{task.name}/grade.py took over {task.config.grading_minutes:g} minutes") from error
        if child.returncode != 0 or not answer.is_file():
            last = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
            raise TaskFault(f"{task.name}/grade.py failed: {last[:500]}")
        return Grade.model_validate_json(answer.read_text())
