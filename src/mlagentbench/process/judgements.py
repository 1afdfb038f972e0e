"""Judgements of a run by models, stored separately from everything that is measured."""

from functools import cache
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator

from mlagentbench.analysis.runs import Run
from mlagentbench.errors import UsageError
from mlagentbench.records import Record
from mlagentbench.system.hashing import hash_file
from mlagentbench.task import describe_validation_error

JUDGEMENTS_FILE = "judged.json"
RUBRIC_PATH = Path(__file__).with_name("rubric.md")


class CriterionScore(Record):
    """The score of one criterion of the rubric, with the steps that support it and a sentence."""

    criterion: str
    score: int = Field(ge=1, le=5)
    steps: tuple[int, ...] = ()
    sentence: str = Field(min_length=1, max_length=2000)


class Judgement(Record):
    """One judgement of one run by one model; its cost is not part of the cost of the run."""

    model: str
    rubric: str  # hash
    trace: str  # hash
    judged: str  # time
    marks: tuple[CriterionScore, ...]
    tokens: int = 0
    dollars: float = 0.0
    seconds: float = 0.0


class RunJudgements(Record):
    """judged.json: all judgements of a run, in order."""

    judgements: tuple[Judgement, ...] = ()

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not self.judgements:
            raise ValueError("no judgements")
        return self

    @property
    def latest(self) -> Judgement:
        """The most recent judgement."""
        return self.judgements[-1]

    @property
    def score_pairs(self) -> tuple[tuple[int, int], ...]:
        """The scores of the last two judgements, by criterion; empty if there are fewer than two."""
        if len(self.judgements) < 2:
            return ()
        first, second = (
            {mark.criterion: mark.score for mark in judgement.marks} for judgement in self.judgements[-2:]
        )
        return tuple((first[name], second[name]) for name in first if name in second)


def read_judgements(run: Run) -> RunJudgements | None:
    """The judgements of the current trace of a run; None if there are none.

    Raises:
        UsageError: judged.json is damaged.
    """
    path, trace = run.folder.path / JUDGEMENTS_FILE, run.folder.trace.path
    if not path.is_file() or not trace.is_file():
        return None
    try:
        judged = RunJudgements.model_validate_json(path.read_bytes())
    except ValidationError as error:
        reason = describe_validation_error(error)
        raise UsageError(f"{path} is damaged: {reason}. Remove it and judge again.") from error
    trace_hash = hash_file(trace)
    current = tuple(judgement for judgement in judged.judgements if judgement.trace == trace_hash)
    return judged.replace(judgements=current) if current else None


@cache
def rubric_criteria() -> tuple[str, ...]:
    """The criteria of the rubric: its second-level headings."""
    lines = RUBRIC_PATH.read_text(encoding="utf-8").splitlines()
    return tuple(line.removeprefix("## ").strip() for line in lines if line.startswith("## "))
