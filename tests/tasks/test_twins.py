"""The twins of the suite's tables, made from the data as it is."""

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlagentbench.preparation.prepare import Prepared, prepared
from mlagentbench.preparation.twin import twin
from mlagentbench.records import Contestant, Result
from mlagentbench.runner.setup import set_up
from mlagentbench.runner.start import start
from mlagentbench.task import Task

TWINS = [name for name in Task.names() if Task.load(name).config.twin]


def quiet(line: str) -> None:
    """Nobody listens."""


@pytest.fixture(params=TWINS)
def both(request: pytest.FixtureRequest) -> Iterator[tuple[Task, Prepared, Prepared]]:
    """A task, its public data, and a twin that goes with the test."""
    task = Task.load(request.param)
    other = twin(task, "open", quiet)
    yield task, prepared(task, "open", quiet), other
    shutil.rmtree(other.folder)
    other.folder.with_name(f"{other.instance}.lock").unlink()


def ids(path: Path) -> set[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return {row[0] for row in csv.reader(file)}


def test_every_task_whose_data_is_tables_has_a_twin() -> None:
    public = {name: prepared(Task.load(name), "open", quiet).files for name in Task.names()}
    assert set(TWINS) == {name for name, files in public.items() if "test.csv" in files}


def test_a_twin_has_the_same_files_with_other_contents_and_answers_what_it_asks(
    both: tuple[Task, Prepared, Prepared],
) -> None:
    _, old, new = both
    assert set(new.files) == set(old.files)
    tables = {name for name in new.files if name.endswith(".csv")}
    assert {name for name in new.files if new.files[name] != old.files[name]} == tables
    asked = "sample_submission.csv" if "sample_submission.csv" in tables else "test.csv"
    assert ids(new.public / asked) == ids(new.private / "answers.csv")


@pytest.mark.slow
def test_starter_and_reference_run_unchanged_on_a_twin_and_improve_as_much(
    both: tuple[Task, Prepared, Prepared], tmp_path: Path
) -> None:
    task, old, new = both

    def score(who: str, data: Prepared) -> float:
        setup = set_up(task.name, "open", "bwrap", quiet, data.instance)
        result: Result = start(setup, Contestant(agent=who), tmp_path / f"{who}-{data.kind}")
        assert result.valid and result.score is not None, result.note
        return result.score

    better = [score("reference", data) / score("baseline", data) for data in (old, new)]
    assert better[1] == pytest.approx(better[0], rel=0.1)
