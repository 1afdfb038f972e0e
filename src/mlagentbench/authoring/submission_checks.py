"""Checks of the contract about grading: answers, constants and malformed submissions."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlagentbench.authoring.contract import CheckFailed, CheckSkipped, TaskUnderTest
from mlagentbench.errors import TaskFault
from mlagentbench.formatting import format_score
from mlagentbench.grading.verdict import compute_verdict, explain_unreachable, is_at_least_as_good

HUGE_BYTES = 200_000_000  # zero bytes, which take no space on the disk
QUANTILES = [number / 20 for number in range(21)]
ALL_PIXELS = "1 4096"  # of a mask
MAX_LISTED = 3


def check_answers(subject: TaskUnderTest) -> None:
    """The answers are a valid submission, better than the reference and a success."""
    task, levels = subject.task, subject.levels
    if task.config.submission.endswith(".csv") and not (subject.data.private / "answers.csv").is_file():
        raise CheckFailed(
            "prepare.py must write the answers to private/answers.csv, with the columns of a submission:"
            " the checks of the grader and the audit start from them."
        )
    grade = subject.grader.grade_path(subject.answers)
    if grade.score is None:
        raise CheckFailed(f"private/answers.csv is not a valid submission: {grade.invalid}")
    if levels.starter and (problem := explain_unreachable(grade.score, levels.starter, task.config.better)):
        raise CheckFailed(problem)
    reference = levels.reference
    if reference and not is_at_least_as_good(grade.score, reference.mean, task.config.better):
        raise CheckFailed(
            f"The answers score {format_score(grade.score)}, worse than the reference"
            f" ({format_score(reference.mean)}). Check `better` in task.toml and grade.py."
        )


def check_constants(subject: TaskUnderTest) -> None:
    """No constant prediction is a success."""
    import pandas as pd

    table = pd.read_csv(subject.answers, dtype=str, keep_default_na=False)
    starter = subject.starter_level
    candidates = {column: _constant_candidates(table[column]) for column in table.columns[1:]}
    count = max(map(len, candidates.values()))
    rows = {tuple(values[number % len(values)] for values in candidates.values()) for number in range(count)}
    submission = subject.scratch_dir / "constant.csv"
    scores = 0
    for row in rows:
        table.assign(**dict(zip(candidates, row, strict=True))).to_csv(submission, index=False)
        score = subject.grader.grade_path(submission).score
        if score is None:  # a mean is not a class
            continue
        scores += 1
        if compute_verdict(score, starter, subject.task.config.better).success:
            raise CheckFailed(
                f"Predicting {', '.join(row)[:100]} everywhere scores {format_score(score)} and is a success."
                " The starter is weaker than a constant; use a stronger one."
            )
    if not scores:
        raise CheckFailed("Every constant prediction is invalid, even one that occurs among the answers.")


def _constant_candidates(column: Any) -> list[str]:
    """Return constants that may score well without learning; they are taken from the answers themselves."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.isna().any():
        words = column.str.split().explode().value_counts().index[:20]
        return [*column.value_counts().index[:5], " ".join(words), ALL_PIXELS]
    usual, distinct = (
        values.quantile(QUANTILES, "nearest") for values in (numbers, numbers.drop_duplicates())
    )
    return [f"{value:.10g}" for value in (*usual, *distinct, numbers.mean())]


def _replace_last_cell(value: bytes) -> Callable[[bytes], bytes]:
    return lambda text: text.rstrip().rpartition(b",")[0] + b"," + value + b"\n"


def _change_lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    return lambda text: b"".join(change(text.splitlines(keepends=True)))


MALFORMED: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda text: b"",
    "header only": _change_lines(lambda lines: lines[:1]),
    "one row missing": _change_lines(lambda lines: lines[:-1]),
    "one row twice": _change_lines(lambda lines: [*lines, lines[-1]]),
    "repeated ids": _change_lines(lambda lines: [*lines[:-1], lines[1]]),
    "wrong columns": _change_lines(lambda lines: [b"a,b\n", *lines[1:]]),
    "not a number": _replace_last_cell(b"nan"),
    "infinite": _replace_last_cell(b"inf"),
    "too large": _replace_last_cell(b"1e308"),
    "text": _replace_last_cell(b"a lot"),
    "plain text": lambda text: b"I am sure that this is right.\n",
    "binary": lambda text: bytes(range(256)) * 100,
    "huge": lambda text: text,  # followed by HUGE_BYTES
}


def check_malformed(subject: TaskUnderTest) -> None:
    """Malformed submissions are invalid, with a message that names the file; none is a fault or a score."""
    valid = subject.answers.read_bytes()
    submission = subject.scratch_dir / Path(subject.task.config.submission).name
    problems, output = list[str](), ""
    for kind, change in MALFORMED.items():
        if len(problems) == MAX_LISTED:
            break
        submission.write_bytes(change(valid))
        if kind == "huge":
            os.truncate(submission, HUGE_BYTES)
        try:
            grade = subject.grader.grade_path(submission)
        except TaskFault as fault:
            problems.append(f"the submission {kind!r} makes the grader fail: {fault}")
            output = output or fault.details
            continue
        if grade.score is not None:
            problems.append(f"the submission {kind!r} scores {format_score(grade.score)}")
        elif submission.name not in grade.invalid:
            problems.append(f"the message for {kind!r} does not name {submission.name}: {grade.invalid}")
    submission.unlink()
    if problems:
        raise CheckFailed(
            f"Malformed submissions are not invalid: {'; '.join(problems)}."
            " Read tables with read_submission_arrays of mlagentbench.grading.checks.",
            output,
        )


def check_empty_workspace(subject: TaskUnderTest) -> None:
    """An empty workspace is invalid."""
    if subject.task.config.submission != ".":
        raise CheckSkipped(f"the submission is the file {subject.task.config.submission}")
    folder = subject.scratch_dir / "empty"
    folder.mkdir()
    grade = subject.grader.grade_path(folder)
    if grade.score is not None:
        raise CheckFailed(f"An empty workspace scores {format_score(grade.score)}.")
    if "missing" not in grade.invalid:
        raise CheckFailed(f"The message for an empty workspace does not say what is missing: {grade.invalid}")
