"""What models judged of runs, apart from everything that was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlagentbench.analysis.runs import Run
from mlagentbench.pages.site.tables import DataTable
from mlagentbench.process.agreement import Agreement, measure_agreement
from mlagentbench.process.judgements import read_judgements, rubric_criteria


@dataclass(frozen=True)
class JudgeScores:
    """Scores from 1 to 5 of the last judging of each run, by contestant and criterion; who judged, and how alike."""

    criteria: tuple[str, ...]
    scores: Mapping[str, Mapping[str, Sequence[int]]]
    models: tuple[str, ...]
    agreement: Agreement | None

    def mean_score(self, who: str, criterion: str) -> float | None:
        """The mean score, if anybody gave one."""
        found = self.scores[who].get(criterion)
        return sum(found) / len(found) if found else None

    def judged_runs(self, who: str) -> int:
        """How many of its runs were judged."""
        return max(map(len, self.scores[who].values()), default=0)

    def to_table(self) -> DataTable:
        """For programs."""
        rows = [
            {
                "who": who,
                "criterion": name,
                "mean": self.mean_score(who, name),
                "runs": len(self.scores[who].get(name, ())),
            }
            for who in self.scores
            for name in self.criteria
        ]
        return DataTable(
            "judged", f"Judged by {', '.join(self.models)}, from 1 to 5: opinions, not measurements", rows
        )


def collect_judge_scores(runs: Sequence[Run], entrants: Sequence[str]) -> JudgeScores | None:
    """Put together what was judged; None if nobody asked a model."""
    scores: dict[str, dict[str, list[int]]] = {}
    models: set[str] = set()
    for run in runs:
        if found := read_judgements(run):
            models.add(found.latest.model)
            for mark in found.latest.marks:
                scores.setdefault(run.agent_label, {}).setdefault(mark.criterion, []).append(mark.score)
    if not scores:
        return None
    ordered = {who: scores[who] for who in entrants if who in scores}
    named = dict.fromkeys([*rubric_criteria(), *(name for own in scores.values() for name in own)])
    return JudgeScores(tuple(named), ordered, tuple(sorted(models)), measure_agreement(runs))
