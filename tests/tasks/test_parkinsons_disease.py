"""The parkinsons-disease task: its invented patients, what is hidden of them, and the competition's own layout."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "parkinsons-disease"
SEED = 2**63 - 25
FILES = {
    "train_clinical_data.csv",
    "train_proteins.csv",
    "train_peptides.csv",
    "supplemental_clinical_data.csv",
    "test.csv",
    "test_proteins.csv",
    "test_peptides.csv",
    "sample_submission.csv",
}


class Made:
    """What prepare.py left."""

    def __init__(self, root: Path) -> None:
        self.public, self.private = root / "public", root / "private"
        self.public.mkdir(parents=True)
        self.private.mkdir()

    def __getitem__(self, name: str) -> pd.DataFrame:
        folder = self.private if name in ("answers", "measured") else self.public
        return pd.read_csv(folder / f"{name}.csv")

    def bytes(self) -> dict[str, bytes]:
        return {
            path.name: path.read_bytes() for room in (self.public, self.private) for path in room.iterdir()
        }


@pytest.fixture(scope="module")
def prepare() -> Iterator[ModuleType]:
    """prepare.py with fewer patients, and its own generator.py beside it."""
    sys.path.insert(0, str(TASK))
    other = sys.modules.pop("generator", None)
    module = load_module_from_file(TASK / "prepare.py")
    module.PATIENTS, module.SUPPLEMENTAL, module.TEST_PATIENTS = 120, 30, {"open": 70, "paper": 3}
    yield module
    sys.path.remove(str(TASK))
    sys.modules.pop("generator")
    if other:
        sys.modules["generator"] = other


@pytest.fixture(scope="module")
def grader() -> ModuleType:
    return load_module_from_file(TASK / "grade.py")


def make(
    prepare: ModuleType, root: Path, seed: int = SEED, edition: str = "open", raw: Path = Path()
) -> Made:
    made = Made(root)
    prepare.prepare(edition, raw, made.public, made.private, seed)
    return made


@pytest.fixture(scope="module")
def made(prepare: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(prepare, tmp_path_factory.mktemp("open") / "made")


def test_one_seed_makes_one_instance_and_another_seed_another(
    prepare: ModuleType, made: Made, tmp_path: Path
) -> None:
    assert make(prepare, tmp_path / "again").bytes() == made.bytes()
    other = make(prepare, tmp_path / "other", seed=1).bytes()
    assert all(other[name] != content for name, content in made.bytes().items())


def test_all_files_are_there_and_no_others(made: Made) -> None:
    assert {path.name for path in made.public.iterdir()} == FILES
    assert {path.name for path in made.private.iterdir()} == {"answers.csv", "measured.csv"}


def test_no_score_of_a_hidden_patient_and_nothing_after_the_last_visit_shown_is_public(made: Made) -> None:
    visits = made["test"]
    ends = visits.groupby("patient_id")["visit_month"].max()
    assert list(visits) == ["visit_id", "patient_id", "visit_month"]
    for name in ("train_clinical_data", "train_proteins", "train_peptides", "supplemental_clinical_data"):
        assert not set(made[name]["patient_id"]) & set(ends.index)
    for name in ("test_proteins", "test_peptides"):
        assert (made[name]["visit_month"] <= made[name]["patient_id"].map(ends)).all()
        assert set(made[name]["visit_id"]) <= set(visits["visit_id"])
    assert set(ends.index.astype(str) + "_" + ends.astype(str)) <= set(made["test_proteins"]["visit_id"])


def test_the_ids_asked_for_do_not_tell_what_was_measured(made: Made) -> None:
    asked, measured = made["sample_submission"], made["measured"]
    assert (
        list(asked["prediction_id"])
        == list(measured["prediction_id"])
        == list(made["answers"]["prediction_id"])
    )
    assert (asked["rating"] == 0).all() and len(asked) == 16 * made["test"]["patient_id"].nunique()
    assert 0.3 < measured["measured"].mean() < 0.8


def test_patient_ids_and_their_order_say_nothing_about_severity(made: Made) -> None:
    clinical = made["train_clinical_data"]
    means = clinical.groupby("patient_id")["updrs_3"].mean()
    assert abs(means.reset_index().corr("spearman").iloc[0, 1]) < 0.4
    supplemental = made["supplemental_clinical_data"]["patient_id"]
    assert (
        supplemental.min() < clinical["patient_id"].max()
        and supplemental.max() > clinical["patient_id"].min()
    )


def test_those_who_come_between_the_yearly_visits_are_worse_off_from_the_start(made: Made) -> None:
    clinical = made["train_clinical_data"]
    eager = clinical[clinical["visit_month"].isin([3, 9, 18])]["patient_id"]
    start = clinical[clinical["visit_month"] == 0].set_index("patient_id")["updrs_3"]
    assert start[start.index.isin(eager)].mean() > 1.15 * start[~start.index.isin(eager)].mean()


def test_a_protein_is_the_sum_of_its_peptides(made: Made) -> None:
    keys = ["visit_id", "UniProt"]
    sums = made["train_peptides"].groupby(keys)["PeptideAbundance"].sum()
    np.testing.assert_allclose(made["train_proteins"].set_index(keys)["NPX"].loc[sums.index], sums, rtol=1e-6)


def test_the_answers_are_a_perfect_submission_in_any_order_and_whatever_was_not_measured(
    made: Made, grader: ModuleType, tmp_path: Path
) -> None:
    assert grader.grade(made.private / "answers.csv", made.private) == 0
    ignored = made["measured"]["measured"] == 0
    other = (
        made["answers"]
        .assign(rating=lambda table: table["rating"].mask(ignored, -7.5))
        .sample(frac=1, random_state=0)
    )
    other.to_csv(tmp_path / "submission.csv", index=False)
    assert grader.grade(tmp_path / "submission.csv", made.private) == 0


def test_smape_is_what_the_description_says(grader: ModuleType, tmp_path: Path) -> None:
    ids = pd.DataFrame({"prediction_id": ["a", "b", "c", "d", "e"]})
    ids.assign(rating=[0, 0, 4, 10, 0]).to_csv(tmp_path / "answers.csv", index=False)
    ids.assign(measured=[1, 1, 1, 1, 0]).to_csv(tmp_path / "measured.csv", index=False)
    ids.assign(rating=[0, 3, -4, 30, 99]).to_csv(tmp_path / "submission.csv", index=False)
    assert grader.grade(tmp_path / "submission.csv", tmp_path) == pytest.approx((0 + 200 + 200 + 100) / 4)


def test_zeros_are_worse_than_means_and_those_worse_than_medians(
    made: Made, grader: ModuleType, tmp_path: Path
) -> None:
    clinical = made["train_clinical_data"].filter(like="updrs_")
    asked = made["sample_submission"]
    score = asked["prediction_id"].str.extract(r"(updrs_\d)")[0]
    ladder = []
    for guesses in (clinical.mean() * 0, clinical.mean(), clinical.median()):
        asked.assign(rating=score.map(guesses)).to_csv(tmp_path / "submission.csv", index=False)
        ladder.append(grader.grade(tmp_path / "submission.csv", made.private))
    assert ladder[0] > 1.2 * ladder[1] > 1.2 * 1.1 * ladder[2]


def lay_competition(raw: Path) -> None:
    """Files of the competition's layout: eight patients, of whom the last has a visit without a sample."""
    raw.mkdir()
    head = "visit_id,patient_id,visit_month,updrs_1,updrs_2,updrs_3,updrs_4,upd23b_clinical_state_on_medication\n"
    people, months = [55, 942, 1517, 1923, 2660, 3636, 3863, 65043], [0, 3, 6, 12]
    rows = [f"{p}_{m},{p},{m},{m}.0,6.0,{p % 100}.0,{'' if m < 6 else '0.0'},{'On' if m > 6 else ''}\n"
            for p in people for m in months]  # fmt: skip
    (raw / "train_clinical_data.csv").write_text(head + "".join(rows))
    (raw / "supplemental_clinical_data.csv").write_text(
        head + "35_0,35,0,5.0,3.0,16.0,0.0,\n35_36,35,36,6.0,4.0,20.0,,On\n"
    )
    samples = [(p, m) for p in people for m in (0, 6, 12)]
    proteins = [f"{p}_{m},{m},{p},O00391,11254.3\n{p}_{m},{m},{p},P04217,732430.0\n" for p, m in samples]
    (raw / "train_proteins.csv").write_text(
        "visit_id,visit_month,patient_id,UniProt,NPX\n" + "".join(proteins)
    )
    pieces = [f"{p}_{m},{m},{p},O00391,NEQEC(UniMod_4)PLGQWHLS,11254.3\n" for p, m in samples]
    head = "visit_id,visit_month,patient_id,UniProt,Peptide,PeptideAbundance\n"
    (raw / "train_peptides.csv").write_text(head + "".join(pieces))


def test_the_competitions_files_are_split_by_patient_under_new_ids(
    prepare: ModuleType, grader: ModuleType, tmp_path: Path
) -> None:
    lay_competition(tmp_path / "raw")
    made = make(prepare, tmp_path / "made", edition="paper", raw=tmp_path / "raw")
    assert {path.name for path in made.public.iterdir()} == FILES
    assert (
        made["train_clinical_data"]["patient_id"].nunique() == 5 and made["test"]["patient_id"].nunique() == 3
    )
    assert made["train_clinical_data"]["patient_id"].between(10_001, 10_009).all()
    assert list(made["supplemental_clinical_data"]["visit_month"]) == [0, 36]
    assert ",732430.0\n" in (made.public / "train_proteins.csv").read_text()
    assert grader.grade(made.private / "answers.csv", made.private) == 0
    truth = made["answers"].merge(made["measured"]).query("measured == 1")
    told = truth["prediction_id"].str.extract(
        r"_(?P<month>\d+)_(?P<score>updrs_\d)_plus_(?P<ahead>\d+)_months"
    )
    first = told["score"] == "updrs_1"  # in these files it is the month of the visit
    assert (told["month"].astype(int) + told["ahead"].astype(int))[first].tolist() == truth["rating"][
        first
    ].tolist()
    assert not (
        (told["score"] == "updrs_4") & (told["month"].astype(int) + told["ahead"].astype(int) < 6)
    ).any()
