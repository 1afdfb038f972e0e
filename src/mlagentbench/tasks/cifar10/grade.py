"""Grades predicted classes of images."""

from pathlib import Path

from mlagentbench.grading.checks import InvalidSubmission, numbers_above, read_answers, read_submission

MAX_EPOCHS = 10
QUALIFIERS = "n|nb|nr|num|number|of|max|maximum|min|total|all|train|training|fit|warmup|default|the|my"
# Not best_epoch and steps_per_epoch, which may be larger.
EPOCH_NAMES = rf"^_*(({QUALIFIERS})_?)*epochs?(_?({QUALIFIERS}|count|limit))*_*$"


def grade(submission: Path, private: Path) -> float:
    """Return the accuracy: the fraction of the hidden images whose class is correct."""
    answers = read_answers(private / "answers.csv", id="Id", columns=["label"])
    predicted = read_submission(submission, id="Id", columns=["label"], like=answers)["label"]
    invalid = predicted[(predicted % 1 != 0) | (predicted < 0) | (predicted > 9)]
    if len(invalid):
        raise InvalidSubmission(
            f"{submission.name}: {len(invalid):,} labels are not integers from 0 to 9,"
            f" for example {invalid.iloc[0]:g}"
        )
    return float((predicted == answers["label"]).mean())


def violations(sources: Path) -> list[str]:
    """Report numbers above MAX_EPOCHS that the scripts assign to names of epoch counts."""
    return numbers_above(sources, "train.py", EPOCH_NAMES, MAX_EPOCHS)
