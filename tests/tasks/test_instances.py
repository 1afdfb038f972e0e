"""Fresh data and twins of the suite's tasks, made from the data as it is."""

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

DOCUMENT = Path(__file__).parents[2] / "docs" / "guides" / "contamination.md"
TASKS = Task.names()
TABLES = [name for name in TASKS if Task.load(name).config.submission.endswith(".csv")]
TWINS = [name for name in TASKS if Task.load(name).config.twin]
QUICK = ("CLRS", "house-price", "spaceship-titanic")  # a second or two each; the others draw for longer
EMPTY = ("vectorization",)  # it has no data: its inputs are drawn while it is graded


def sometimes(name: str, always: bool) -> Any:
    return pytest.param(name, marks=[] if always else [pytest.mark.slow])


def quiet(line: str) -> None:
    """Nobody listens."""


@pytest.fixture
def passing() -> Iterator[Callable[[PreparedData], PreparedData]]:
    """Data that goes with the test."""
    made: list[PreparedData] = []

    def keep(data: PreparedData) -> PreparedData:
        made.append(data)
        return data

    yield keep
    for data in made:
        shutil.rmtree(data.folder)
        data.folder.with_name(f"{data.instance}.lock").unlink()


@pytest.fixture(params=[sometimes(name, name != "parkinsons-disease") for name in TWINS])  # 700,000 rows
def both(
    request: pytest.FixtureRequest, passing: Callable[[PreparedData], PreparedData]
) -> tuple[Task, PreparedData, PreparedData]:
    """A task, its public data, and a twin."""
    task = Task.load(request.param)
    return task, prepare_data(task, "open", quiet), passing(prepare_twin(task, "open", quiet))


def ids(path: Path) -> set[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return {row[0] for row in csv.reader(file)}


def answers(data: PreparedData) -> dict[str, bytes]:
    files = (path for path in data.private.rglob("*") if path.is_file() and path.name != "seed.json")
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.parametrize("name", [sometimes(name, name in QUICK) for name in TASKS if name not in EMPTY])
def test_a_fresh_instance_has_other_data_and_other_answers(
    name: str, passing: Callable[[PreparedData], PreparedData]
) -> None:
    task = Task.load(name)
    old, new = prepare_data(task, "open", quiet), passing(prepare_data(task, "open", quiet, fresh=True))
    assert (old.kind, new.kind) == ("public", "fresh")
    assert len(new.files) == len(old.files) and new.files != old.files
    assert set(answers(new)) == set(answers(old)) and answers(new) != answers(old)


def test_every_task_whose_data_is_tables_has_a_twin_and_the_others_a_reason() -> None:
    public = {name: prepare_data(Task.load(name), "open", quiet).files for name in TASKS}
    assert set(TWINS) == {name for name, files in public.items() if "test.csv" in files}
    reasons = DOCUMENT.read_text().partition("## Which tasks have none, and why")[2].partition("\n## ")[0]
    assert {name for name in TABLES if name in reasons} == set(TABLES) - set(TWINS)
    assert all(name in reasons for name in set(TASKS) - set(TABLES))


def test_a_twin_has_the_same_files_with_other_contents_and_answers_what_it_asks(
    both: tuple[Task, PreparedData, PreparedData],
) -> None:
    _, old, new = both
    assert set(new.files) == set(old.files)
    tables = {name for name in new.files if name.endswith(".csv")}
    assert {name for name in new.files if new.files[name] != old.files[name]} == tables
    asked = "sample_submission.csv" if "sample_submission.csv" in tables else "test.csv"
    assert ids(new.public / asked) == ids(new.private / "answers.csv")


@pytest.mark.slow
def test_starter_and_reference_run_unchanged_on_a_twin_and_improve_as_much(
    both: tuple[Task, PreparedData, PreparedData], tmp_path: Path
) -> None:
    task, old, new = both

    def score(who: str, data: PreparedData) -> float:
        setup = prepare_setup(task.name, "open", "bwrap", quiet, data.instance)
        result: Result = start_run(setup, who, tmp_path / f"{who}-{data.kind}")
        assert result.valid and result.score is not None, result.note
        return result.score

    better = [score("reference", data) / score("baseline", data) for data in (old, new)]
    assert better[1] == pytest.approx(better[0], rel=0.1)
