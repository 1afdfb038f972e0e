"""What models judged of a run: apart from everything that was measured, and marked as judged."""

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
    """One criterion of the rubric: 1 to 5, the steps that it rests on, and a sentence."""

    criterion: str
    score: int = Field(ge=1, le=5)
    steps: tuple[int, ...] = ()
    sentence: str = Field(min_length=1, max_length=2000)


class Judgement(Record):
    """One model's reading of one run; what it cost is no cost of the run."""

    model: str
    rubric: str
    trace: str
    judged: str
    marks: tuple[CriterionScore, ...]
    tokens: int = 0
    dollars: float = 0.0
    seconds: float = 0.0


class RunJudgements(Record):
    """judged.json: every judgement of a run, in order; two make an agreement."""

    judgements: tuple[Judgement, ...] = ()

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not self.judgements:
            raise ValueError("it holds no judgement")
        return self

    @property
    def latest(self) -> Judgement:
        """The last one."""
        return self.judgements[-1]

    @property
    def score_pairs(self) -> tuple[tuple[int, int], ...]:
        """The scores of the last two judgings, criterion by criterion; none if there are not two."""
        if len(self.judgements) < 2:
            return ()
        one, other = ({mark.criterion: mark.score for mark in each.marks} for each in self.judgements[-2:])
        return tuple((one[name], other[name]) for name in one if name in other)


def read_judgements(run: Run) -> RunJudgements | None:
    """What models judged of a run as it is now; None if nobody asked one, or if it was done over since."""
    path, trace = run.folder.path / JUDGEMENTS_FILE, run.folder.trace.path
    if not path.is_file() or not trace.is_file():
        return None
    try:
        judged = RunJudgements.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UsageError(
            f"{path} is damaged: {describe_validation_error(error)}; remove it, and judge again"
        ) from error
    current = hash_file(trace)
    kept = tuple(each for each in judged.judgements if each.trace == current)
    return judged.replace(judgements=kept) if kept else None


@cache
def rubric_criteria() -> tuple[str, ...]:
    """The criteria of the rubric: its headings of the second level."""
    lines = RUBRIC_PATH.read_text(encoding="utf-8").splitlines()
    return tuple(line.removeprefix("## ").strip() for line in lines if line.startswith("## "))
