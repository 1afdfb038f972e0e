"""The twin of a table: everything that could be memorized is different, and the task is the same."""

import json
from pathlib import Path

import pandas as pd
import pytest
from loopback import small_task

from mlagentbench.errors import TaskFault, UsageError
from mlagentbench.preparation.prepare import PreparedData, find_prepared_data, prepare_data
from mlagentbench.preparation.twin import Relabeling, prepare_twin
from mlagentbench.task import Task

TABLES = """
def prepare(edition, raw, public, private, seed):
    places = ["Red Hill", "NA", "Mill"] * 20
    rows = [f"{n:04d}_0{n % 2},{place},{n * 100},{n}.25,{1950 + n},{n}" for n, place in enumerate(places)]
    head = "id,place,area,room,built,price"
    (public / "train.csv").write_text("\\n".join([head, *rows[:30]]) + "\\n")
    (public / "test.csv").write_text("\\n".join(row.rpartition(",")[0] for row in [head, *rows[30:]]) + "\\n")
    answers = [",".join(row.split(",")[::5]) for row in [head, *rows[30:]]]
    (private / "answers.csv").write_text("\\n".join(answers) + "\\n")
    (public / "notes").mkdir()
    (public / "notes" / "more.csv").write_text("id\\n0000_00\\n")
"""
RULES = """
[twin]
ids = ["id"]
words = ["place"]
units = [["area", "room"], ["price"]]
years = ["built"]
"""


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """A task with two tables, all of whose columns may be relabeled."""
    folder = small_task(tmp_path / "small", TABLES).folder
    (folder / "task.toml").write_text(
        (folder / "task.toml").read_text().replace("[editions.open]", RULES + "[editions.open]")
    )
    return Task(folder)


@pytest.fixture
def public_and_twin(task: Task, progress: list[str]) -> tuple[PreparedData, PreparedData]:
    """The public data and a twin of it."""
    return prepare_data(task, "open", progress.append), prepare_twin(task, "open", progress.append)


def read(data: PreparedData, name: str) -> pd.DataFrame:
    return pd.read_csv(data.folder / name, dtype={"id": str}).sort_values("id", ignore_index=True)


def test_ids_words_units_and_years_change_and_relations_hold(
    public_and_twin: tuple[PreparedData, PreparedData],
) -> None:
    old, new = (
        pd.concat([read(data, f"public/{name}.csv") for name in ("train", "test")])
        for data in public_and_twin
    )
    assert set(old["id"].str[:4]) == set(new["id"].str[:4]) and list(old["id"]) != list(new["id"])
    old, new = (
        table.sort_values("area", ignore_index=True) for table in (old, new)
    )  # the factor keeps the order
    assert old["id"].str[4:].equals(new["id"].str[4:])
    assert (old["place"].isna() == new["place"].isna()).all()
    renamed = dict(zip(old["place"].dropna(), new["place"].dropna(), strict=True))
    assert len(renamed) == len(set(renamed.values())) == 2 and not set(renamed) & set(renamed.values())
    assert len(renamed["Red Hill"].split()) == 2
    factor = new["area"].sum() / old["area"].sum()
    assert 1.14 < factor < 1.86 and new["area"].is_unique
    assert abs(new["area"] - factor * old["area"]).max() <= 0.6
    assert abs(new["room"] - factor * old["room"]).max() <= 0.02  # the same unit; as many decimals as before
    assert new["area"].dtype == old["area"].dtype == int
    (shift,) = set(new["built"] - old["built"])
    assert 20 <= shift <= 60


def test_the_answers_belong_to_the_relabeled_rows(public_and_twin: tuple[PreparedData, PreparedData]) -> None:
    old, new = (
        read(data, "public/test.csv")
        .merge(read(data, "private/answers.csv"), on="id", how="outer")
        .sort_values("area")
        for data in public_and_twin
    )
    assert len(old) == len(new) == 30 and not new["price"].isna().any()
    assert new["price"].is_monotonic_increasing and old["price"].is_monotonic_increasing


def test_a_table_in_a_subfolder_is_relabeled_in_the_same_way(
    public_and_twin: tuple[PreparedData, PreparedData],
) -> None:
    smallest = (
        pd.read_csv(public_and_twin[1].public / "train.csv", dtype=str)
        .sort_values("area", key=pd.to_numeric)["id"]
        .iloc[0]
    )
    assert (public_and_twin[1].public / "notes" / "more.csv").read_text() == f"id\n{smallest}\n"


@pytest.mark.parametrize(
    ("cell", "factor", "expected"), [("10", 1.5, "15"), ("0.10", 1.5, "0.15"), ("2e-05", 1.5, "0.00003")]
)
def test_a_number_keeps_its_number_of_decimals(task: Task, cell: str, factor: float, expected: str) -> None:
    assert task.config.twin
    relabeling = Relabeling(task.config.twin, [], 1)
    relabeling.factors["area"] = factor
    assert list(relabeling.relabel_column("area", [cell, "NA"])) == [expected, "NA"]


def test_the_order_of_rows_changes(public_and_twin: tuple[PreparedData, PreparedData]) -> None:
    old, new = (pd.read_csv(data.public / "train.csv")["area"] for data in public_and_twin)
    assert list(old) == sorted(old) and list(new) != sorted(new)


def test_a_twin_is_found_by_name_and_only_its_private_folder_contains_the_seed(
    public_and_twin: tuple[PreparedData, PreparedData], task: Task, progress: list[str]
) -> None:
    public, other = public_and_twin
    assert (public.kind, other.kind) == ("public", "twin") and prepare_data(
        task, "open", progress.append, fresh=True
    ).kind == "fresh"
    assert (
        find_prepared_data(task, "open", other.instance)
        == find_prepared_data(task, "open", other.hash)
        == other
    )
    assert find_prepared_data(task, "open") == public and other.instance.startswith("open-twin-")
    seed = str(json.loads((other.private / "seed.json").read_text())["twin"])
    assert seed not in (other.folder / "data.json").read_text() + other.instance
    assert other.private.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in other.private.iterdir()} == {0o600}
    other.verify_unchanged()
    again = prepare_twin(task, "open", progress.append)
    assert again.hash != other.hash


def test_a_task_without_tables_has_no_twin_and_a_wrong_column_is_reported(
    tmp_path: Path, task: Task, progress: list[str]
) -> None:
    with pytest.raises(UsageError, match="Task plain has no twin"):
        prepare_twin(small_task(tmp_path / "plain", TABLES), "open", progress.append)
    toml = task.folder / "task.toml"
    toml.write_text(toml.read_text().replace('"built"', '"bulit"'))
    with pytest.raises(TaskFault, match=r"\[twin\] in task.toml names the column bulit, which no table has"):
        prepare_twin(Task(task.folder), "open", progress.append)
    toml.write_text(toml.read_text().replace('"bulit"', '"place"').replace('words = ["place"]', ""))
    with pytest.raises(
        TaskFault, match="cannot make a twin of its tables: could not convert string to float: 'Red Hill'"
    ):
        prepare_twin(Task(task.folder), "open", progress.append)
    assert not list((prepare_data(task, "open", progress.append).folder.parent).glob("open-twin-*/data.json"))
