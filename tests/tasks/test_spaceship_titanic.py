"""The spaceship-titanic task: generated passengers, the split of the competition's data, and the grader."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "spaceship-titanic"
SPENDING = ["RoomService", "FoodCourt", "ShoppingMall", "Spa", "VRDeck"]
MAX_SEED = 2**63 - 1


class PreparedTables(NamedTuple):
    folder: Path
    train: pd.DataFrame
    test: pd.DataFrame
    answers: pd.DataFrame


PrepareEdition = Callable[..., PreparedTables]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return load_module_from_file(TASK / "generator.py")


@pytest.fixture(scope="module")
def prepare_edition(tmp_path_factory: pytest.TempPathFactory) -> PrepareEdition:
    """Return a function that runs prepare.py as the harness does."""

    def run(edition: str, seed: int, raw: Path | None = None) -> PreparedTables:
        folder = tmp_path_factory.mktemp("data")
        (folder / "public").mkdir()
        (folder / "private").mkdir()
        sys.path.append(str(TASK))
        before = set(sys.modules)
        try:
            prepare = load_module_from_file(TASK / "prepare.py").prepare
            prepare(edition, raw or folder, folder / "public", folder / "private", seed)
        finally:
            sys.path.remove(str(TASK))
            if "generator" not in before:
                sys.modules.pop("generator", None)  # another task may have one too
        names = ("public/train.csv", "public/test.csv", "private/answers.csv")
        return PreparedTables(
            folder, *(pd.read_csv(folder / name, dtype=str, keep_default_na=False) for name in names)
        )

    return run


@pytest.fixture(scope="module")
def open_edition(prepare_edition: PrepareEdition) -> PreparedTables:
    return prepare_edition("open", 7)


@pytest.fixture(scope="module")
def kaggle_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a train.csv with Kaggle's layout: 40 groups in order, True and False, empty cells."""
    raw = tmp_path_factory.mktemp("raw")
    lines = [
        f"PassengerId,HomePlanet,CryoSleep,Cabin,Destination,Age,VIP,{','.join(SPENDING)},Name,Transported"
    ]
    for group in range(1, 41):
        for member in range(1, group % 4 + 2):
            home, age = ("Europa", "39.0") if group % 3 else ("", "")
            cells = [f"{group:04d}_{member:02d}", home, "False", f"B/{group}/P", "TRAPPIST-1e", age, "False"]
            cells += [
                "0.0",
                "9.0",
                "",
                "549.0",
                "44.0",
                f"Maham{member} Of{group}",
                str((group + member) % 2 == 0),
            ]
            lines.append(",".join(cells))
    (raw / "train.csv").write_text("\n".join(lines) + "\n")
    return raw


def group_numbers(table: pd.DataFrame) -> "pd.Series[str]":
    return table["PassengerId"].str[:4]


def are_equal(one: PreparedTables, other: PreparedTables) -> bool:
    return all(a.equals(b) for a, b in zip(one[1:], other[1:], strict=True))


def test_a_seed_determines_the_ship(prepare_edition: PrepareEdition, open_edition: PreparedTables) -> None:
    assert are_equal(prepare_edition("open", 7), open_edition)
    other = prepare_edition("open", MAX_SEED)
    assert not set(other.test["Name"]) <= set(open_edition.test["Name"]) and not are_equal(
        other, open_edition
    )


def test_the_files_have_the_competitions_columns_and_no_answers(open_edition: PreparedTables) -> None:
    columns = [
        "PassengerId",
        "HomePlanet",
        "CryoSleep",
        "Cabin",
        "Destination",
        "Age",
        "VIP",
        *SPENDING,
        "Name",
    ]
    assert list(open_edition.train) == [*columns, "Transported"] and list(open_edition.test) == columns
    assert len(open_edition.train) == len(open_edition.test) == 6000
    assert open_edition.answers["PassengerId"].equals(open_edition.test["PassengerId"])
    assert set(open_edition.train["Transported"]) == set(open_edition.answers["Transported"]) == {"0", "1"}
    assert sorted(path.name for path in (open_edition.folder / "public").iterdir()) == [
        "test.csv",
        "train.csv",
    ]


def test_no_group_no_cabin_and_no_row_is_in_both_files(open_edition: PreparedTables) -> None:
    assert not set(group_numbers(open_edition.train)) & set(group_numbers(open_edition.test))
    assert not set(open_edition.train["Cabin"]) & set(open_edition.test["Cabin"]) - {""}
    all_passengers = pd.concat([open_edition.train, open_edition.test])
    assert all_passengers["PassengerId"].is_unique
    features = all_passengers.drop(columns=["PassengerId", "Transported"])
    assert not features[features["Cabin"] != ""].duplicated().any()


def test_neither_group_number_nor_row_predicts_the_label(open_edition: PreparedTables) -> None:
    labels = open_edition.answers["Transported"].astype(float)
    for column in (group_numbers(open_edition.test).astype(float), pd.Series(np.arange(6000.0))):
        assert abs(column.corr(labels, method="pearson")) < 0.05


def test_sleepers_and_small_children_spend_nothing(open_edition: PreparedTables) -> None:
    spent = open_edition.train[SPENDING].apply(pd.to_numeric).sum(axis=1)
    young = pd.to_numeric(open_edition.train["Age"]) <= 12
    assert (spent[(open_edition.train["CryoSleep"] == "True") | young] == 0).all()
    assert (spent[(open_edition.train["CryoSleep"] == "False") & ~young] > 0).mean() > 0.9


def test_about_two_per_cent_of_every_column_is_missing_but_not_at_random(generator: ModuleType) -> None:
    (table,) = generator.generate_passengers(3, [12000])
    empty = table == ""
    assert empty[generator.COLUMNS].mean().between(0.014, 0.026).all()
    assert not empty[["PassengerId", "Transported"]].any(axis=None)
    alone = ~group_numbers(table).duplicated(keep=False)
    assert empty[alone].mean().mean() > 1.3 * empty[~alone].mean().mean()


def test_a_group_shares_planet_deck_and_side_and_mostly_a_surname(generator: ModuleType) -> None:
    (table,) = generator.generate_passengers(3, [6000])
    seen = table[(table[["HomePlanet", "Cabin", "Name"]] != "").all(axis=1)]
    assert (seen.groupby(group_numbers(seen))["HomePlanet"].nunique() == 1).all()
    where = seen["Cabin"].str.replace(r"/\d+/", "/", regex=True)
    assert (where.groupby(group_numbers(seen)).nunique() == 1).all()
    company = seen[group_numbers(seen).duplicated(keep=False)]
    surnames = company["Name"].str.split().str[1].groupby(group_numbers(company)).nunique()
    assert 0.6 < (surnames == 1).mean() < 0.85


@pytest.mark.parametrize("seed", [0, MAX_SEED])
def test_labels_are_predictable_but_not_perfectly(generator: ModuleType, seed: int) -> None:
    (table,) = generator.generate_passengers(seed, [6000])
    labels = table["Transported"] == 1
    best = ((table["probability"] > 0.5) == labels).mean()
    by_sleep = ((table["CryoSleep"] == "True") == labels).mean()
    assert 0.47 < labels.mean() < 0.54
    assert 0.67 < by_sleep < best - 0.08 and best < 0.91


def test_the_ceiling_is_what_the_hidden_labels_allow_given_everything_but_the_last_draw(
    open_edition: PreparedTables, generator: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "generator", generator)
    public, private = open_edition.folder / "public", open_edition.folder / "private"
    (private / "seed.json").write_text(json.dumps(7))
    ceiling = load_module_from_file(TASK / "ceiling.py").ceiling(public, private)
    _, hidden = generator.generate_passengers(7, [6000, 6000])
    labels = open_edition.answers["Transported"].astype(int)
    assert ceiling == ((hidden["probability"] > 0.5).astype(int) == labels).mean()
    by_sleep = (open_edition.test["CryoSleep"] == "True").astype(int) == labels
    assert by_sleep.mean() + 0.08 < ceiling < 0.91


def test_the_starter_validates_with_whole_groups_held_out(
    open_edition: PreparedTables, tmp_path: Path
) -> None:
    code, ending = (TASK / "starter" / "train.py").read_text().rsplit("\nmain()", 1)
    starter: dict[str, Any] = {}
    exec(code, starter)
    seen = []

    def remember(features: Any, labels: Any, new_features: Any) -> Any:
        seen.append((features[:, 0], new_features[:, 0]))
        return np.zeros(len(new_features), int)

    starter["fit_predict"], starter["COLUMNS"] = remember, ["group"]
    for name in ("train", "test"):
        table = getattr(open_edition, name)
        table.assign(group=group_numbers(table)).to_csv(tmp_path / f"{name}.csv", index=False)
    with contextlib.chdir(tmp_path):
        starter["main"]()
    assert not ending.strip() and len(seen) == 6
    assert all(not set(known) & set(held_out) for known, held_out in seen)


def test_the_competitions_passengers_are_split_by_group_and_renumbered(
    prepare_edition: PrepareEdition, kaggle_folder: Path
) -> None:
    tables = prepare_edition("paper", 7, kaggle_folder)
    original = pd.read_csv(kaggle_folder / "train.csv", dtype=str, keep_default_na=False)
    assert not set(group_numbers(tables.train)) & set(group_numbers(tables.test))
    assert (
        len(tables.train) + len(tables.test) == len(original)
        and abs(len(tables.train) - len(tables.test)) <= 10
    )
    assert (
        tables.answers["PassengerId"].equals(tables.test["PassengerId"]) and "Transported" not in tables.test
    )
    all_passengers = pd.concat([tables.train, tables.test.merge(tables.answers, on="PassengerId")]).set_index(
        "Name"
    )
    assert (
        all_passengers["PassengerId"].is_unique
        and all_passengers["PassengerId"].str.fullmatch(r"\d{4}_0\d").all()
    )
    original = original.set_index("Name").loc[all_passengers.index]
    assert (group_numbers(original) != group_numbers(all_passengers)).any()
    assert all_passengers.groupby(group_numbers(all_passengers))["Cabin"].nunique().eq(1).all()
    assert all_passengers["Transported"].map({"1": "True", "0": "False"}).equals(original["Transported"])
    rest = ["PassengerId", "Transported"]
    assert all_passengers.drop(columns=rest).equals(original.drop(columns=rest))


def test_the_split_depends_on_the_seed_only(prepare_edition: PrepareEdition, kaggle_folder: Path) -> None:
    assert are_equal(
        prepare_edition("paper", MAX_SEED, kaggle_folder), prepare_edition("paper", MAX_SEED, kaggle_folder)
    )
    assert not are_equal(
        prepare_edition("paper", MAX_SEED, kaggle_folder), prepare_edition("paper", 1, kaggle_folder)
    )


def test_accuracy_is_the_fraction_of_correct_answers_in_any_order(
    open_edition: PreparedTables, tmp_path: Path
) -> None:
    grade = load_module_from_file(TASK / "grade.py").grade
    assert grade(open_edition.folder / "private" / "answers.csv", open_edition.folder / "private") == 1
    wrong = open_edition.answers.astype({"Transported": int})
    wrong.loc[:599, "Transported"] = 1 - wrong.loc[:599, "Transported"]
    wrong[::-1].to_csv(tmp_path / "submission.csv", index=False)
    assert grade(tmp_path / "submission.csv", open_edition.folder / "private") == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0.5", "submission.csv: 1 values of Transported are neither 0 nor 1, for example 0.5"),
        ("-1", "neither 0 nor 1, for example -1"),
        ("0.9999", "neither 0 nor 1, for example 0.9999"),
        ("True", "not usable numbers: 'True'"),
    ],
)
def test_only_0_and_1_are_valid_predictions(
    open_edition: PreparedTables, tmp_path: Path, value: str, message: str
) -> None:
    table = open_edition.answers.copy()
    table.loc[17, "Transported"] = value
    table.to_csv(tmp_path / "submission.csv", index=False)
    with pytest.raises(InvalidSubmission) as caught:
        load_module_from_file(TASK / "grade.py").grade(
            tmp_path / "submission.csv", open_edition.folder / "private"
        )
    assert message in str(caught.value)
