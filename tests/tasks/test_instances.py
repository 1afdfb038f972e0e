"""Fresh instances and twins of the built-in tasks."""

import csv
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlagentbench.preparation.prepare import PreparedData, prepare_data
from mlagentbench.preparation.twin import prepare_twin
from mlagentbench.records import Result
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.runner.start import start_run
from mlagentbench.task import Task

CONTAMINATION_PAGE = Path(__file__).parents[2] / "docs" / "guides" / "contamination.md"
TASKS = Task.names()
TABLES = [name for name in TASKS if Task.load(name).config.submission.endswith(".csv")]
TWINS = [name for name in TASKS if Task.load(name).config.twin]
FAST_TASKS = ("CLRS", "house-price", "spaceship-titanic")  # a second or two each; the others take longer
TASKS_WITHOUT_DATA = ("vectorization",)  # its inputs are drawn during grading


def slow_unless(name: str, always: bool) -> Any:
    return pytest.param(name, marks=[] if always else [pytest.mark.slow])


def ignore_progress(line: str) -> None:
    """Discard progress messages."""


@pytest.fixture
def temporary_data() -> Iterator[Callable[[PreparedData], PreparedData]]:
    """Return a function that registers data to be deleted after the test."""
    registered: list[PreparedData] = []

    def register(data: PreparedData) -> PreparedData:
        registered.append(data)
        return data

    yield register
    for data in registered:
        shutil.rmtree(data.folder)
        data.folder.with_name(f"{data.instance}.lock").unlink()


@pytest.fixture(params=[slow_unless(name, name != "parkinsons-disease") for name in TWINS])  # 700,000 rows
def task_and_twin(
    request: pytest.FixtureRequest, temporary_data: Callable[[PreparedData], PreparedData]
) -> tuple[Task, PreparedData, PreparedData]:
    """A task, its public data, and a twin."""
    task = Task.load(request.param)
    return (
        task,
        prepare_data(task, "open", ignore_progress),
        temporary_data(prepare_twin(task, "open", ignore_progress)),
    )


def read_ids(path: Path) -> set[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return {row[0] for row in csv.reader(file)}


def read_answers(data: PreparedData) -> dict[str, bytes]:
    files = (path for path in data.private.rglob("*") if path.is_file() and path.name != "seed.json")
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "name", [slow_unless(name, name in FAST_TASKS) for name in TASKS if name not in TASKS_WITHOUT_DATA]
)
def test_a_fresh_instance_has_other_data_and_other_answers(
    name: str, temporary_data: Callable[[PreparedData], PreparedData]
) -> None:
    task = Task.load(name)
    old, new = (
        prepare_data(task, "open", ignore_progress),
        temporary_data(prepare_data(task, "open", ignore_progress, fresh=True)),
    )
    assert (old.kind, new.kind) == ("public", "fresh")
    assert len(new.files) == len(old.files) and new.files != old.files
    assert set(read_answers(new)) == set(read_answers(old)) and read_answers(new) != read_answers(old)


def test_every_task_with_tables_has_a_twin_and_the_others_a_documented_reason() -> None:
    public = {name: prepare_data(Task.load(name), "open", ignore_progress).files for name in TASKS}
    assert set(TWINS) == {name for name, files in public.items() if "test.csv" in files}
    reasons = CONTAMINATION_PAGE.read_text().partition("## Tasks without a twin")[2].partition("\n## ")[0]
    assert {name for name in TABLES if name in reasons} == set(TABLES) - set(TWINS)
    assert all(name in reasons for name in set(TASKS) - set(TABLES))


def test_a_twin_has_the_same_files_with_other_contents_and_matching_answers(
    task_and_twin: tuple[Task, PreparedData, PreparedData],
) -> None:
    _, old, new = task_and_twin
    assert set(new.files) == set(old.files)
    tables = {name for name in new.files if name.endswith(".csv")}
    assert {name for name in new.files if new.files[name] != old.files[name]} == tables
    question_file = "sample_submission.csv" if "sample_submission.csv" in tables else "test.csv"
    assert read_ids(new.public / question_file) == read_ids(new.private / "answers.csv")


@pytest.mark.slow
def test_starter_and_reference_run_unchanged_on_a_twin_and_improve_as_much(
    task_and_twin: tuple[Task, PreparedData, PreparedData], tmp_path: Path
) -> None:
    task, old, new = task_and_twin

    def score(who: str, data: PreparedData) -> float:
        setup = prepare_setup(task.name, "open", "bwrap", ignore_progress, data.instance)
        result: Result = start_run(setup, who, tmp_path / f"{who}-{data.kind}")
        assert result.valid and result.score is not None, result.note
        return result.score

    ratios = [score("reference", data) / score("baseline", data) for data in (old, new)]
    assert ratios[1] == pytest.approx(ratios[0], rel=0.1)
