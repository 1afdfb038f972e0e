"""What models judged of a run: apart from everything that was measured, and marked as judged."""

from functools import cache
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator

from mlagentbench.errors import UsageError
from mlagentbench.hashing import file_hash
from mlagentbench.records import Record
from mlagentbench.reports.runs import Run
from mlagentbench.task import explain

FILE = "judged.json"
RUBRIC = Path(__file__).with_name("rubric.md")


class Mark(Record):
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
    marks: tuple[Mark, ...]
    tokens: int = 0
    dollars: float = 0.0
    seconds: float = 0.0


class Judged(Record):
    """judged.json: every judgement of a run, in order; two make an agreement."""

    judgements: tuple[Judgement, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.judgements:
            raise ValueError("it holds no judgement")
        return self

    @property
    def latest(self) -> Judgement:
        """The last one."""
        return self.judgements[-1]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The scores of the last two judgings, criterion by criterion; none if there are not two."""
        if len(self.judgements) < 2:
            return ()
        one, other = ({mark.criterion: mark.score for mark in each.marks} for each in self.judgements[-2:])
        return tuple((one[name], other[name]) for name in one if name in other)


def judgement_of(run: Run) -> Judged | None:
    """What models judged of a run as it is now; None if nobody asked one, or if it was done over since."""
    path, trace = run.folder.path / FILE, run.folder.trace.path
    if not path.is_file() or not trace.is_file():
        return None
    try:
        judged = Judged.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UsageError(f"{path} is damaged: {explain(error)}; remove it, and judge again") from error
    current = file_hash(trace)
    kept = tuple(each for each in judged.judgements if each.trace == current)
    return judged.but(judgements=kept) if kept else None


@cache
def criteria() -> tuple[str, ...]:
    """The criteria of the rubric: its headings of the second level."""
    lines = RUBRIC.read_text(encoding="utf-8").splitlines()
    return tuple(line.removeprefix("## ").strip() for line in lines if line.startswith("## "))
