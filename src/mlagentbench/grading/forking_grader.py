"""Grades many submissions of one task: grade.py is loaded once, and each submission gets its own fork."""

import json
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import ValidationError

from mlagentbench.grading.fork_server import DONE
from mlagentbench.grading.grade import Grade, grade, grade_path, grader_command, grader_environment
from mlagentbench.preparation.prepare import PreparedData
from mlagentbench.sandbox.base import Sandbox
from mlagentbench.system.cache import temporary_dir
from mlagentbench.task import Task
from mlagentbench.workspace.store import Store


class ForkingGrader:
    """Client of the fork server, for submissions that are one file.

    A submission that is a whole folder contains code, which the grader runs from a process of its own.
    """

    def __init__(self, task: Task, data: PreparedData, sandbox: Sandbox, folder: Path) -> None:
        self.task, self.data, self.sandbox, self.folder = task, data, sandbox, folder
        self._process: subprocess.Popen[bytes] | None = None

    def grade(self, store: Store, step: int) -> Grade:
        """Return the same as `grade.grade`, without rule violations; use `grade.grade` where a fork fails."""
        name = self.task.config.submission
        entry = None if name == "." else store.state(step).get(name)
        if entry is None or entry.kind != "file":
            return grade(self.task, self.data, store, step, self.sandbox)
        with (
            TemporaryDirectory(dir=self.folder) as submission_dir,
            TemporaryDirectory(dir=self.folder) as answer_dir,
        ):
            submission = Path(submission_dir, Path(name).name)
            store.export(step, name, submission)
            result = self._request_grade(submission, Path(answer_dir, "answer.json"))
        return result or grade(self.task, self.data, store, step, self.sandbox)

    def grade_path(self, submission: Path) -> Grade:
        """Return the same as `grade.grade_path`."""
        if submission.is_file():
            with TemporaryDirectory(dir=self.folder) as answer_dir:
                if result := self._request_grade(submission, Path(answer_dir, "answer.json")):
                    return result
        return grade_path(self.task, self.data, submission, self.sandbox)

    def _request_grade(self, submission: Path, answer: Path) -> Grade | None:
        process = self._process = self._process or self._start_server()
        assert process.stdin and process.stdout
        with suppress(OSError, ValidationError):  # the server died, or the answer is missing or malformed
            process.stdin.write(json.dumps([str(submission), str(answer)]).encode() + b"\n")
            process.stdin.flush()
            poll = select.poll()
            poll.register(process.stdout, select.POLLIN)
            if poll.poll(self.task.config.grading_minutes * 60_000) and process.stdout.read(1) == DONE:
                return Grade.model_validate_json(answer.read_bytes())
        self.close()
        return None

    def _start_server(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            grader_command("fork_server", self.task.folder, self.data.private),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(grader_environment(self.task, self.sandbox)),
            cwd=self.folder,
            bufsize=0,
            start_new_session=True,  # Ctrl-C must reach only the harness
        )

    def close(self) -> None:
        """Kill the server; its forks die with it."""
        if self._process:
            with self._process as process:
                process.kill()
        self._process = None


@contextmanager
def open_forking_grader(task: Task, data: PreparedData, sandbox: Sandbox) -> Iterator[ForkingGrader]:
    """Provide a ForkingGrader and close it afterwards."""
    with temporary_dir() as folder:
        grader = ForkingGrader(task, data, sandbox, folder)
        try:
            yield grader
        finally:
            grader.close()
