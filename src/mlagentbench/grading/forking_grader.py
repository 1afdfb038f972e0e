"""Grades many submissions of one task, without checking its rules."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from mlagentbench.grading.grade import grade
from mlagentbench.grading.run_grader import Grade, run_grader
from mlagentbench.preparation.prepare import PreparedData
from mlagentbench.sandbox.base import Sandbox
from mlagentbench.system.cache import temporary_dir
from mlagentbench.system.stop_token import StopToken
from mlagentbench.task import Task
from mlagentbench.workspace.manifest import Entry
from mlagentbench.workspace.store import Store


class ForkingGrader:
    """Grades in forks of a process that has loaded the grader, as `grade.grade` does, in one folder."""

    def __init__(self, task: Task, data: PreparedData, sandbox: Sandbox, folder: Path) -> None:
        self.task, self.data, self.sandbox, self.folder = task, data, sandbox, folder

    def grade(self, store: Store, step: int) -> Grade:
        """Return the same as `grade.grade`, without rule violations."""
        name = self.task.config.submission
        entry = None if name == "." else store.state(step).get(name)
        if entry is None or entry.kind != "file":
            return grade(self.task, self.data, store, step, self.sandbox).replace(violations=())
        return self.grade_entry(store, step, entry)

    def grade_entry(self, store: Store, step: int, entry: Entry) -> Grade:
        """Like `grade`, for a submission that is known to be a file: a lookup reads the whole manifest."""
        name = self.task.config.submission
        with TemporaryDirectory(dir=self.folder) as folder:
            (parent := Path(folder, "submission")).mkdir()
            store.export_entry(step, name, entry, parent / Path(name).name)
            return self._run_grader(parent / Path(name).name, Path(folder))

    def grade_path(self, submission: Path) -> Grade:
        """Grade a file, or a folder if the task asks for one, that belongs to no run."""
        with TemporaryDirectory(dir=self.folder) as folder:
            return self._run_grader(submission, Path(folder))

    def _run_grader(self, submission: Path, folder: Path) -> Grade:
        paths = {"submission": submission}
        report = run_grader(self.task, self.data.private, self.sandbox, paths, folder, StopToken())
        return Grade(score=report.score, invalid=report.invalid)


@contextmanager
def open_forking_grader(task: Task, data: PreparedData, sandbox: Sandbox) -> Iterator[ForkingGrader]:
    """Provide a ForkingGrader, whose folder is removed afterwards."""
    with temporary_dir() as folder:
        yield ForkingGrader(task, data, sandbox, folder)
