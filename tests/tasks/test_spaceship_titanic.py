"""The spaceship-titanic task: its invented passengers, its split of the competition's own, its grader."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "spaceship-titanic"
SPENDING = ["RoomService", "FoodCourt", "ShoppingMall", "Spa", "VRDeck"]
LARGEST = 2**63 - 1


class Made(NamedTuple):
    folder: Path
    train: pd.DataFrame
    test: pd.DataFrame
    answers: pd.DataFrame


Make = Callable[..., Made]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return load_module_from_file(TASK / "generator.py")


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Runs prepare.py as the harness does: make("open", 7), or make("paper", 7, raw)."""

    def run(edition: str, seed: int, raw: Path | None = None) -> Made:
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
        return Made(folder, *(pd.read_csv(folder / name, dtype=str, keep_default_na=False) for name in names))

    return run


@pytest.fixture(scope="module")
def ship(make: Make) -> Made:
    return make("open", 7)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a train.csv in the layout of Kaggle's: 40 groups in order, True and False, empty cells."""
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


def groups(table: pd.DataFrame) -> "pd.Series[str]":
    return table["PassengerId"].str[:4]


def same(one: Made, other: Made) -> bool:
    return all(a.equals(b) for a, b in zip(one[1:], other[1:], strict=True))


def test_a_seed_makes_the_same_ship_again_and_another_seed_another(make: Make, ship: Made) -> None:
    assert same(make("open", 7), ship)
    other = make("open", LARGEST)
    assert not set(other.test["Name"]) <= set(ship.test["Name"]) and not same(other, ship)


def test_the_files_have_the_competitions_columns_and_the_answers_are_elsewhere(ship: Made) -> None:
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
    assert list(ship.train) == [*columns, "Transported"] and list(ship.test) == columns
    assert len(ship.train) == len(ship.test) == 6000
    assert ship.answers["PassengerId"].equals(ship.test["PassengerId"])
    assert set(ship.train["Transported"]) == set(ship.answers["Transported"]) == {"0", "1"}
    assert sorted(path.name for path in (ship.folder / "public").iterdir()) == ["test.csv", "train.csv"]


def test_no_group_no_cabin_and_no_row_is_in_both_files(ship: Made) -> None:
    assert not set(groups(ship.train)) & set(groups(ship.test))
    assert not set(ship.train["Cabin"]) & set(ship.test["Cabin"]) - {""}
    everybody = pd.concat([ship.train, ship.test])
    assert everybody["PassengerId"].is_unique
    features = everybody.drop(columns=["PassengerId", "Transported"])
    assert not features[features["Cabin"] != ""].duplicated().any()


def test_neither_the_number_nor_the_place_of_a_passenger_tells_the_fate(ship: Made) -> None:
    fate = ship.answers["Transported"].astype(float)
    for column in (groups(ship.test).astype(float), pd.Series(np.arange(6000.0))):
        assert abs(column.corr(fate, method="pearson")) < 0.05


def test_those_who_sleep_and_small_children_spend_nothing(ship: Made) -> None:
    spent = ship.train[SPENDING].apply(pd.to_numeric).sum(axis=1)
    young = pd.to_numeric(ship.train["Age"]) <= 12
    assert (spent[(ship.train["CryoSleep"] == "True") | young] == 0).all()
    assert (spent[(ship.train["CryoSleep"] == "False") & ~young] > 0).mean() > 0.9


def test_about_two_per_cent_of_every_column_is_missing_but_not_at_random(generator: ModuleType) -> None:
    (table,) = generator.generate_passengers(3, [12000])
    empty = table == ""
    assert empty[generator.COLUMNS].mean().between(0.014, 0.026).all()
    assert not empty[["PassengerId", "Transported"]].any(axis=None)
    alone = ~groups(table).duplicated(keep=False)
    assert empty[alone].mean().mean() > 1.3 * empty[~alone].mean().mean()


def test_a_group_shares_planet_deck_and_side_and_mostly_a_surname(generator: ModuleType) -> None:
    (table,) = generator.generate_passengers(3, [6000])
    seen = table[(table[["HomePlanet", "Cabin", "Name"]] != "").all(axis=1)]
    assert (seen.groupby(groups(seen))["HomePlanet"].nunique() == 1).all()
    where = seen["Cabin"].str.replace(r"/\d+/", "/", regex=True)
    assert (where.groupby(groups(seen)).nunique() == 1).all()
    company = seen[groups(seen).duplicated(keep=False)]
    surnames = company["Name"].str.split().str[1].groupby(groups(company)).nunique()
    assert 0.6 < (surnames == 1).mean() < 0.85


@pytest.mark.parametrize("seed", [0, LARGEST])
def test_there_is_much_to_learn_and_something_that_nobody_can(generator: ModuleType, seed: int) -> None:
    (table,) = generator.generate_passengers(seed, [6000])
    fate = table["Transported"] == 1
    best = ((table["probability"] > 0.5) == fate).mean()
    by_sleep = ((table["CryoSleep"] == "True") == fate).mean()
    assert 0.47 < fate.mean() < 0.54
    assert 0.67 < by_sleep < best - 0.08 and best < 0.91


def test_the_competitions_passengers_are_halved_by_group_and_numbered_anew(make: Make, archive: Path) -> None:
    made = make("paper", 7, archive)
    original = pd.read_csv(archive / "train.csv", dtype=str, keep_default_na=False)
    assert not set(groups(made.train)) & set(groups(made.test))
    assert len(made.train) + len(made.test) == len(original) and abs(len(made.train) - len(made.test)) <= 10
    assert made.answers["PassengerId"].equals(made.test["PassengerId"]) and "Transported" not in made.test
    everybody = pd.concat([made.train, made.test.merge(made.answers, on="PassengerId")]).set_index("Name")
    assert everybody["PassengerId"].is_unique and everybody["PassengerId"].str.fullmatch(r"\d{4}_0\d").all()
    original = original.set_index("Name").loc[everybody.index]
    assert (groups(original) != groups(everybody)).any()
    assert everybody.groupby(groups(everybody))["Cabin"].nunique().eq(1).all()
    assert everybody["Transported"].map({"1": "True", "0": "False"}).equals(original["Transported"])
    rest = ["PassengerId", "Transported"]
    assert everybody.drop(columns=rest).equals(original.drop(columns=rest))


def test_the_halves_depend_on_the_seed_only(make: Make, archive: Path) -> None:
    assert same(make("paper", LARGEST, archive), make("paper", LARGEST, archive))
    assert not same(make("paper", LARGEST, archive), make("paper", 1, archive))


def test_accuracy_is_the_share_of_right_answers_in_any_order(ship: Made, tmp_path: Path) -> None:
    grade = load_module_from_file(TASK / "grade.py").grade
    assert grade(ship.folder / "private" / "answers.csv", ship.folder / "private") == 1
    wrong = ship.answers.astype({"Transported": int})
    wrong.loc[:599, "Transported"] = 1 - wrong.loc[:599, "Transported"]
    wrong[::-1].to_csv(tmp_path / "submission.csv", index=False)
    assert grade(tmp_path / "submission.csv", ship.folder / "private") == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("0.5", "submission.csv: 1 values of Transported are neither 0 nor 1, for example 0.5"),
        ("-1", "neither 0 nor 1, for example -1"),
        ("0.9999", "neither 0 nor 1, for example 0.9999"),
        ("True", "not usable numbers: 'True'"),
    ],
)
def test_only_0_and_1_are_predictions(ship: Made, tmp_path: Path, value: str, sentence: str) -> None:
    table = ship.answers.copy()
    table.loc[17, "Transported"] = value
    table.to_csv(tmp_path / "submission.csv", index=False)
    with pytest.raises(InvalidSubmission) as caught:
        load_module_from_file(TASK / "grade.py").grade(tmp_path / "submission.csv", ship.folder / "private")
    assert sentence in str(caught.value)
