"""Scores that judge models gave to runs, kept apart from everything that was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlagentbench.analysis.runs import Run
from mlagentbench.pages.site.tables import DataTable
from mlagentbench.process.agreement import Agreement, measure_agreement
from mlagentbench.process.judgements import read_judgements, rubric_criteria


@dataclass(frozen=True)
class JudgeScores:
    """The latest scores (1 to 5) of all judged runs, the judges, and the agreement between them."""

    criteria: tuple[str, ...]
    scores: Mapping[str, Mapping[str, Sequence[int]]]  # agent -> criterion -> one score per run
    models: tuple[str, ...]
    agreement: Agreement | None

    def mean_score(self, agent: str, criterion: str) -> float | None:
        """The mean score of an agent, None if there is no score."""
        scores = self.scores[agent].get(criterion)
        return sum(scores) / len(scores) if scores else None

    def judged_runs(self, agent: str) -> int:
        """How many runs of an agent were judged."""
        return max(map(len, self.scores[agent].values()), default=0)

    def to_table(self) -> DataTable:
        """Mean scores by agent and criterion."""
        rows = [
            {
                "agent": agent,
                "criterion": criterion,
                "mean": self.mean_score(agent, criterion),
                "runs": len(self.scores[agent].get(criterion, ())),
            }
            for agent in self.scores
            for criterion in self.criteria
        ]
        title = f"Scores from 1 to 5 by {', '.join(self.models)}: opinions, not measurements"
        return DataTable("judged", title, rows)


def collect_judge_scores(runs: Sequence[Run], agents: Sequence[str]) -> JudgeScores | None:
    """Collect the latest scores of all runs; None if no run was judged."""
    scores: dict[str, dict[str, list[int]]] = {}
    models: set[str] = set()
    for run in runs:
        if judgements := read_judgements(run):
            models.add(judgements.latest.model)
            for mark in judgements.latest.marks:
                scores.setdefault(run.agent_label, {}).setdefault(mark.criterion, []).append(mark.score)
    if not scores:
        return None
    ordered = {agent: scores[agent] for agent in agents if agent in scores}
    scored_criteria = (criterion for by_criterion in scores.values() for criterion in by_criterion)
    criteria = dict.fromkeys([*rubric_criteria(), *scored_criteria])
    return JudgeScores(tuple(criteria), ordered, tuple(sorted(models)), measure_agreement(runs))
