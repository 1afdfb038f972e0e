"""The contract that every task keeps, as a list of checks; `mlagentbench check` and the tests run them."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

from mlagentbench.errors import BenchError, TaskFault
from mlagentbench.grading.forking_grader import ForkingGrader, open_forking_grader
from mlagentbench.preparation.prepare import PreparedData, prepare_data
from mlagentbench.records import Baseline, Levels, Record, Result
from mlagentbench.runner.failed_scripts import describe_failed_script
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.runner.start import start_run
from mlagentbench.sandbox.selection import create_sandbox
from mlagentbench.system.cache import temporary_dir
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Task

Status = Literal["pass", "fail", "skip"]


class CheckFailed(Exception):
    """The task breaks the contract.

    Attributes:
        output: The last lines that the task's own code printed.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class CheckSkipped(Exception):
    """The check does not apply to the task; the message says why."""


class CheckOutcome(Record):
    """How one check ended."""

    name: str
    title: str
    status: Status
    detail: str = ""
    output: str = ""
    seconds: float = 0.0


class TaskUnderTest:
    """A task whose contract is checked; data, graders and runs are made when a check needs them.

    Use it in a `with` statement: it removes its runs and stops its grader at the end.
    """

    def __init__(self, name: str, edition: str, sandbox: str, progress: ProgressCallback) -> None:
        """Take the name or folder of a task; nothing is read yet."""
        self.name, self.edition, self._sandbox_name = name, edition, sandbox
        self._progress, self._stack = progress, ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def task(self) -> Task:
        """The task."""
        return Task.load(self.name)

    @property
    def levels(self) -> Levels:
        """The levels of the edition in task.toml."""
        return self.task.edition(self.edition).levels

    @property
    def starter_level(self) -> Baseline:
        """The scores of the starter in task.toml; the check is skipped if they are not known."""
        if self.levels.starter is None:
            raise CheckSkipped("the starter has not been measured")
        return self.levels.starter

    @cached_property
    def data(self) -> PreparedData:
        """The data of the default instance."""
        return prepare_data(self.task, self.edition, self._progress)

    @cached_property
    def setup(self) -> Setup:
        """What a run needs."""
        return prepare_setup(self.name, self.edition, self._sandbox_name, self._progress)

    @cached_property
    def grader(self) -> ForkingGrader:
        """Grades files and folders."""
        sandbox = create_sandbox(self._sandbox_name)
        return self._stack.enter_context(open_forking_grader(self.task, self.data, sandbox))

    @cached_property
    def scratch_dir(self) -> Path:
        """A folder for submissions and runs."""
        return self._stack.enter_context(temporary_dir())

    @property
    def answers(self) -> Path:
        """The hidden answers in the form of a submission; the check is skipped if there are none."""
        if not self.task.config.submission.endswith(".csv"):
            raise CheckSkipped(f"the submission is {self.task.config.submission!r}, not a table")
        path = self.data.private / "answers.csv"
        if not path.is_file():
            raise CheckSkipped("prepare.py wrote no answers.csv")
        return path

    def run_agent(self, agent: str) -> Result:
        """Run one of the agents that need no model.

        Raises:
            CheckFailed: The harness, the grader or a script of the task failed.
        """
        folder = self.scratch_dir / agent
        result = start_run(self.setup, agent, folder)
        if result.ending == "fault":
            raise CheckFailed(result.note)
        reason, output = describe_failed_script(RunFolder(folder).steps())
        if reason:
            raise CheckFailed(f"The script failed: {reason}", output)
        return result


@dataclass(frozen=True)
class TaskCheck:
    """One part of the contract.

    Attributes:
        name: A short name.
        title: What holds if the check passes.
        function: Raises CheckFailed, CheckSkipped or an error of the package.
        needs: Names of checks that must have passed before.
        slow: Whether it runs scripts of the task or attacks.
    """

    name: str
    title: str
    function: Callable[[TaskUnderTest], None]
    needs: tuple[str, ...] = ("files",)
    slow: bool = False


def run_contract(
    checks: tuple[TaskCheck, ...], subject: TaskUnderTest, quick: bool = False
) -> Iterator[CheckOutcome]:
    """Run checks one after another and yield how each ended; `quick` skips the slow ones."""
    statuses: dict[str, Status] = {}
    for check in checks:
        missing = [name for name in check.needs if statuses.get(name) != "pass"]
        if missing:
            outcome = _outcome(check, "skip", f"needs the check {missing[0]}")
        elif quick and check.slow:
            outcome = _outcome(check, "skip", "left out by --quick")
        else:
            started = time.monotonic()
            outcome = _run_check(check, subject)
            outcome = outcome.replace(seconds=round(time.monotonic() - started, 1))
        statuses[check.name] = outcome.status
        yield outcome


def _run_check(check: TaskCheck, subject: TaskUnderTest) -> CheckOutcome:
    try:
        check.function(subject)
    except CheckSkipped as reason:
        return _outcome(check, "skip", str(reason))
    except CheckFailed as failure:
        return _outcome(check, "fail", str(failure), failure.output)
    except TaskFault as fault:
        return _outcome(check, "fail", str(fault), fault.details)
    except (BenchError, OSError) as error:
        return _outcome(check, "fail", str(error))
    return _outcome(check, "pass")


def _outcome(check: TaskCheck, status: Status, detail: str = "", output: str = "") -> CheckOutcome:
    return CheckOutcome(name=check.name, title=check.title, status=status, detail=detail, output=output)
