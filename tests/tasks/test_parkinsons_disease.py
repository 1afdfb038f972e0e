"""The parkinsons-disease task: its generated patients, what is hidden, and the competition's layout."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

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


class PreparedFolders:
    """The files that prepare.py wrote."""

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
    """Load prepare.py with fewer patients, and with its own generator.py on the path."""
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


def prepare_edition(
    prepare: ModuleType, root: Path, seed: int = SEED, edition: str = "open", raw: Path = Path()
) -> PreparedFolders:
    prepared = PreparedFolders(root)
    prepare.prepare(edition, raw, prepared.public, prepared.private, seed)
    return prepared


@pytest.fixture(scope="module")
def prepared(prepare: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> PreparedFolders:
    return prepare_edition(prepare, tmp_path_factory.mktemp("open") / "made")


def test_a_seed_determines_the_instance(
    prepare: ModuleType, prepared: PreparedFolders, tmp_path: Path
) -> None:
    assert prepare_edition(prepare, tmp_path / "again").bytes() == prepared.bytes()
    other = prepare_edition(prepare, tmp_path / "other", seed=1).bytes()
    assert all(other[name] != content for name, content in prepared.bytes().items())


def test_exactly_the_documented_files_are_written(prepared: PreparedFolders) -> None:
    assert {path.name for path in prepared.public.iterdir()} == FILES
    assert {path.name for path in prepared.private.iterdir()} == {"answers.csv", "measured.csv"}


def test_scores_and_later_visits_of_test_patients_are_not_public(prepared: PreparedFolders) -> None:
    visits = prepared["test"]
    ends = visits.groupby("patient_id")["visit_month"].max()
    assert list(visits) == ["visit_id", "patient_id", "visit_month"]
    for name in ("train_clinical_data", "train_proteins", "train_peptides", "supplemental_clinical_data"):
        assert not set(prepared[name]["patient_id"]) & set(ends.index)
    for name in ("test_proteins", "test_peptides"):
        assert (prepared[name]["visit_month"] <= prepared[name]["patient_id"].map(ends)).all()
        assert set(prepared[name]["visit_id"]) <= set(visits["visit_id"])
    assert set(ends.index.astype(str) + "_" + ends.astype(str)) <= set(prepared["test_proteins"]["visit_id"])


def test_the_required_ids_do_not_reveal_what_was_measured(prepared: PreparedFolders) -> None:
    asked, measured = prepared["sample_submission"], prepared["measured"]
    assert (
        list(asked["prediction_id"])
        == list(measured["prediction_id"])
        == list(prepared["answers"]["prediction_id"])
    )
    assert (asked["rating"] == 0).all() and len(asked) == 16 * prepared["test"]["patient_id"].nunique()
    assert 0.3 < measured["measured"].mean() < 0.8


def test_patient_ids_and_their_order_carry_no_information_about_severity(prepared: PreparedFolders) -> None:
    clinical = prepared["train_clinical_data"]
    means = clinical.groupby("patient_id")["updrs_3"].mean()
    assert abs(means.reset_index().corr("spearman").iloc[0, 1]) < 0.4
    supplemental = prepared["supplemental_clinical_data"]["patient_id"]
    assert (
        supplemental.min() < clinical["patient_id"].max()
        and supplemental.max() > clinical["patient_id"].min()
    )


def test_patients_with_extra_visits_are_sicker_from_the_start(prepared: PreparedFolders) -> None:
    clinical = prepared["train_clinical_data"]
    frequent_visitors = clinical[clinical["visit_month"].isin([3, 9, 18])]["patient_id"]
    start = clinical[clinical["visit_month"] == 0].set_index("patient_id")["updrs_3"]
    assert (
        start[start.index.isin(frequent_visitors)].mean()
        > 1.15 * start[~start.index.isin(frequent_visitors)].mean()
    )


def test_a_protein_is_the_sum_of_its_peptides(prepared: PreparedFolders) -> None:
    keys = ["visit_id", "UniProt"]
    sums = prepared["train_peptides"].groupby(keys)["PeptideAbundance"].sum()
    np.testing.assert_allclose(
        prepared["train_proteins"].set_index(keys)["NPX"].loc[sums.index], sums, rtol=1e-6
    )


def test_the_answers_score_zero_in_any_order_and_unmeasured_forecasts_are_ignored(
    prepared: PreparedFolders, grader: ModuleType, tmp_path: Path
) -> None:
    assert grader.grade(prepared.private / "answers.csv", prepared.private) == 0
    ignored = prepared["measured"]["measured"] == 0
    other = (
        prepared["answers"]
        .assign(rating=lambda table: table["rating"].mask(ignored, -7.5))
        .sample(frac=1, random_state=0)
    )
    other.to_csv(tmp_path / "submission.csv", index=False)
    assert grader.grade(tmp_path / "submission.csv", prepared.private) == 0


def test_smape_is_what_the_description_says(grader: ModuleType, tmp_path: Path) -> None:
    ids = pd.DataFrame({"prediction_id": ["a", "b", "c", "d", "e"]})
    ids.assign(rating=[0, 0, 4, 10, 0]).to_csv(tmp_path / "answers.csv", index=False)
    ids.assign(measured=[1, 1, 1, 1, 0]).to_csv(tmp_path / "measured.csv", index=False)
    ids.assign(rating=[0, 3, -4, 30, 99]).to_csv(tmp_path / "submission.csv", index=False)
    assert grader.grade(tmp_path / "submission.csv", tmp_path) == pytest.approx((0 + 200 + 200 + 100) / 4)


def test_zeros_are_worse_than_means_and_means_worse_than_medians(
    prepared: PreparedFolders, grader: ModuleType, tmp_path: Path
) -> None:
    clinical = prepared["train_clinical_data"].filter(like="updrs_")
    asked = prepared["sample_submission"]
    score = asked["prediction_id"].str.extract(r"(updrs_\d)")[0]
    scores = []
    for guesses in (clinical.mean() * 0, clinical.mean(), clinical.median()):
        asked.assign(rating=score.map(guesses)).to_csv(tmp_path / "submission.csv", index=False)
        scores.append(grader.grade(tmp_path / "submission.csv", prepared.private))
    assert scores[0] > 1.2 * scores[1] > 1.2 * 1.1 * scores[2]


def test_optimal_forecasts_beat_medians_but_cannot_know_the_noise(
    prepared: PreparedFolders, grader: ModuleType, tmp_path: Path
) -> None:
    for name in ("answers", "measured"):
        prepared[name].to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "seed.json").write_text(json.dumps(SEED))
    module = load_module_from_file(TASK / "ceiling.py")
    module.PARTICLES = 5_000
    asked = prepared["sample_submission"]
    medians = prepared["train_clinical_data"].filter(like="updrs_").median()
    asked["rating"] = asked["prediction_id"].str.extract(r"(updrs_\d)")[0].map(medians)
    asked.to_csv(tmp_path / "submission.csv", index=False)
    assert (
        40
        < module.ceiling(prepared.public, tmp_path)
        < 0.9 * grader.grade(tmp_path / "submission.csv", prepared.private)
    )


def test_the_starter_validates_as_if_one_visit_with_a_sample_were_drawn_per_patient(
    prepared: PreparedFolders,
) -> None:
    starter: dict[str, Any] = {}
    exec((TASK / "starter" / "train.py").read_text().rsplit("\nmain()", 1)[0], starter)
    visits, samples = (
        prepared["train_clinical_data"],
        prepared["train_proteins"]["visit_id"].drop_duplicates(),
    )
    weights = starter["sample_weights"](visits, samples)
    assert (weights[~visits["visit_id"].isin(samples)] == 0).all()
    totals = weights.groupby(visits["patient_id"]).sum()
    sampled = visits[visits["visit_id"].isin(samples)]["patient_id"].unique()
    np.testing.assert_allclose(totals[sampled], 1)


def write_competition_files(raw: Path) -> None:
    """Write files with the competition's layout: eight patients, each with a visit without a sample."""
    raw.mkdir()
    head = "visit_id,patient_id,visit_month,updrs_1,updrs_2,updrs_3,updrs_4,"
    head += "upd23b_clinical_state_on_medication\n"
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
    write_competition_files(tmp_path / "raw")
    prepared = prepare_edition(prepare, tmp_path / "made", edition="paper", raw=tmp_path / "raw")
    assert {path.name for path in prepared.public.iterdir()} == FILES
    assert (
        prepared["train_clinical_data"]["patient_id"].nunique() == 5
        and prepared["test"]["patient_id"].nunique() == 3
    )
    assert prepared["train_clinical_data"]["patient_id"].between(10_001, 10_009).all()
    assert list(prepared["supplemental_clinical_data"]["visit_month"]) == [0, 36]
    assert ",732430.0\n" in (prepared.public / "train_proteins.csv").read_text()
    assert grader.grade(prepared.private / "answers.csv", prepared.private) == 0
    truth = prepared["answers"].merge(prepared["measured"]).query("measured == 1")
    id_parts = truth["prediction_id"].str.extract(
        r"_(?P<month>\d+)_(?P<score>updrs_\d)_plus_(?P<ahead>\d+)_months"
    )
    first = id_parts["score"] == "updrs_1"  # in these files it is the month of the visit
    assert (id_parts["month"].astype(int) + id_parts["ahead"].astype(int))[first].tolist() == truth["rating"][
        first
    ].tolist()
    assert not (
        (id_parts["score"] == "updrs_4") & (id_parts["month"].astype(int) + id_parts["ahead"].astype(int) < 6)
    ).any()
