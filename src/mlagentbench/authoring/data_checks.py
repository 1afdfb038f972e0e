"""Checks of the contract about the prepared data: what the agent gets must not contain the answers."""

from pathlib import Path
from typing import Any

from mlagentbench.authoring.contract import CheckFailed, CheckSkipped, TaskUnderTest

MIN_DISTINCT_ANSWERS = 2  # a constant column says nothing
TABLE_SUFFIXES = {".csv": ",", ".tsv": "\t"}
MAX_TABLE_BYTES = 500_000_000
SAME_FRACTION = 0.99  # of the rows in which a public column equals the answer


def check_data(subject: TaskUnderTest) -> None:
    """prepare.py runs and writes data."""
    if not subject.data.files:
        raise CheckFailed("prepare.py wrote no public files.")


def check_private_files(subject: TaskUnderTest) -> None:
    """No file of the private folder is among the files that the agent gets."""
    roots = (subject.data.public, subject.task.starter)
    given = {path.read_bytes(): path for root in roots for path in _files_below(root)}
    for path in _files_below(subject.data.private):
        if public := given.get(path.read_bytes()):
            raise CheckFailed(f"The private file {path.name} is also given to the agent, as {public.name}.")


def check_public_columns(subject: TaskUnderTest) -> None:
    """No column of a public table holds the answers."""
    import pandas as pd

    answers = pd.read_csv(subject.answers, dtype=str, keep_default_na=False)
    answers = answers.set_index(answers.columns[0])
    tables = [path for path in _files_below(subject.data.public) if path.suffix in TABLE_SUFFIXES]
    if not tables:
        raise CheckSkipped("there are no public tables")
    for path in tables:
        if path.stat().st_size <= MAX_TABLE_BYTES and (found := _find_answers(path, answers)):
            raise CheckFailed(f"{path.relative_to(subject.data.public)} contains the answers: {found}.")


def _find_answers(path: Path, answers: Any) -> str:
    """Name a column of a table that equals a column of the answers, by the ids that both have."""
    import pandas as pd

    try:
        table = pd.read_csv(path, sep=TABLE_SUFFIXES[path.suffix], dtype=str, keep_default_na=False)
    except (ValueError, pd.errors.ParserError):  # not a table; an empty file is a ValueError too
        return ""
    ids = answers.index.name
    if ids not in table.columns or table[ids].duplicated().any():
        return ""
    table = table.set_index(ids)
    shared = answers.index.intersection(table.index)
    if len(shared) < len(answers) * SAME_FRACTION:
        return ""
    for name in answers.columns:
        expected = answers.loc[shared, name]
        if expected.nunique() < MIN_DISTINCT_ANSWERS:
            continue
        most_common = expected.value_counts(normalize=True).iloc[0]
        for column in table.columns:
            same = (table.loc[shared, column] == expected).mean()
            if same > max(SAME_FRACTION, most_common):
                return f"its column {column} equals {name} in {same:.0%} of the rows"
    return ""


def _files_below(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())
