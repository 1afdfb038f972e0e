"""The contract of every task folder; a new task needs no new test.

The checks are those of `mlagentbench check`. Runs of the starter and the reference take minutes and are
marked slow; `make prove` uses more seeds.
"""

from collections.abc import Callable, Iterator

import pytest

from mlagentbench.analysis.paper import load_success_rates
from mlagentbench.authoring.contract import CheckSkipped, TaskCheck, TaskUnderTest
from mlagentbench.authoring.task_checks import TASK_CHECKS
from mlagentbench.system.progress import ignore_progress
from mlagentbench.task import REQUIRED_PARTS, Task

TASKS = Task.names()
PAPER_TASKS = load_success_rates().tasks
FAST_TASKS = ("house-price",)  # one whole run of a real task, of its starter, is always among the tests
QUICK_CHECKS = [check for check in TASK_CHECKS if not check.slow]
# The audit of every task is `make audit`; its quick form on two tasks is in tests/audit.
RUN_CHECKS = [check for check in TASK_CHECKS if check.slow and check.name != "audit"]
SLOW_CHECKS = ("reference", "packages")  # even for a fast task


@pytest.fixture(scope="module")
def open_subject() -> Iterator[Callable[[str], TaskUnderTest]]:
    """Return a function that opens a task once for all its checks."""
    subjects: dict[str, TaskUnderTest] = {}

    def open_once(name: str) -> TaskUnderTest:
        if name not in subjects:
            for other in subjects.values():  # its grader holds memory
                other.__exit__()
            subjects.clear()
            subjects[name] = TaskUnderTest(name, "open", "bwrap", ignore_progress)
        return subjects[name]

    yield open_once
    for subject in subjects.values():
        subject.__exit__()


def run_check(check: TaskCheck, subject: TaskUnderTest) -> None:
    try:
        check.function(subject)
    except CheckSkipped as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("check", QUICK_CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("name", TASKS)
def test_a_task_keeps_the_contract(
    name: str, check: TaskCheck, open_subject: Callable[[str], TaskUnderTest]
) -> None:
    run_check(check, open_subject(name))


def mark_slow(name: str, check: TaskCheck) -> list[pytest.MarkDecorator]:
    is_fast = name in FAST_TASKS and check.name not in SLOW_CHECKS
    return [pytest.mark.xdist_group(name), *([] if is_fast else [pytest.mark.slow])]


@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(name, check, marks=mark_slow(name, check), id=f"{name}-{check.name}")
        for name in TASKS
        for check in RUN_CHECKS
    ],
)
def test_the_solutions_of_a_task_keep_the_contract(name: str, check: TaskCheck) -> None:
    with TaskUnderTest(name, "open", "bwrap", ignore_progress) as subject:
        run_check(check, subject)


@pytest.mark.parametrize("name", Task.builtin_names())
def test_a_builtin_task_has_both_editions_and_a_readme(name: str) -> None:
    task = Task.load(name)
    assert all((task.folder / part).exists() for part in (*REQUIRED_PARTS, "README.md"))
    editions = {"open", "paper"} if name in PAPER_TASKS else {"open"}
    assert set(task.config.editions) >= editions
