"""Grades predicted classes of images."""

from pathlib import Path

from mlagentbench.grading.checks import InvalidSubmission, numbers_above, read_answers, read_submission

MOST_EPOCHS = 10
COUNT = "n|nb|nr|num|number|of|max|maximum|min|total|all|train|training|fit|warmup|default|the|my"
EPOCHS = (
    rf"^_*(({COUNT})_?)*epochs?(_?({COUNT}|count|limit))*_*$"  # best_epoch and steps_per_epoch may be more
)


def grade(submission: Path, private: Path) -> float:
    """Accuracy: the share of the hidden images whose class is right."""
    answers = read_answers(private / "answers.csv", id="Id", columns=["label"])
    predicted = read_submission(submission, id="Id", columns=["label"], like=answers)["label"]
    wrong = predicted[(predicted % 1 != 0) | (predicted < 0) | (predicted > 9)]
    if len(wrong):
        raise InvalidSubmission(
            f"{submission.name} has {len(wrong):,} labels that are no class (0 to 9): {wrong.iloc[0]:g}, ..."
        )
    return float((predicted == answers["label"]).mean())


def violations(sources: Path) -> list[str]:
    """More epochs than the rules allow, as far as a number with such a name tells."""
    return numbers_above(sources, "train.py", EPOCHS, MOST_EPOCHS)
