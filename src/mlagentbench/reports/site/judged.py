"""What models judged of runs, apart from everything that was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlagentbench.reports.process.agreement import Agreement, agreement
from mlagentbench.reports.process.judge import criteria, judgement_of
from mlagentbench.reports.runs import Run
from mlagentbench.reports.site.tables import Table


@dataclass(frozen=True)
class Marks:
    """Scores from 1 to 5 of the last judging of each run, by contestant and criterion; who judged, and how alike."""

    criteria: tuple[str, ...]
    scores: Mapping[str, Mapping[str, Sequence[int]]]
    models: tuple[str, ...]
    agreement: Agreement | None

    def mean(self, who: str, criterion: str) -> float | None:
        """The mean score, if anybody gave one."""
        found = self.scores[who].get(criterion)
        return sum(found) / len(found) if found else None

    def runs(self, who: str) -> int:
        """How many of its runs were judged."""
        return max(map(len, self.scores[who].values()), default=0)

    def table(self) -> Table:
        """For programs."""
        rows = [
            {"who": who, "criterion": name, "mean": self.mean(who, name), "runs": len(self.scores[who].get(name, ()))}
            for who in self.scores
            for name in self.criteria
        ]
        return Table("judged", f"Judged by {', '.join(self.models)}, from 1 to 5: opinions, not measurements", rows)


def marks(runs: Sequence[Run], entrants: Sequence[str]) -> Marks | None:
    """Put together what was judged; None if nobody asked a model."""
    scores: dict[str, dict[str, list[int]]] = {}
    models: set[str] = set()
    for run in runs:
        if found := judgement_of(run):
            models.add(found.latest.model)
            for mark in found.latest.marks:
                scores.setdefault(run.who, {}).setdefault(mark.criterion, []).append(mark.score)
    if not scores:
        return None
    ordered = {who: scores[who] for who in entrants if who in scores}
    named = dict.fromkeys([*criteria(), *(name for own in scores.values() for name in own)])
    return Marks(tuple(named), ordered, tuple(sorted(models)), agreement(runs))
