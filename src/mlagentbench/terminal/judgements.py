"""Scores by judge models, always marked as opinions."""

from collections.abc import Sequence

from mlagentbench.analysis.runs import Run
from mlagentbench.formatting import strip_control_chars
from mlagentbench.process.agreement import Agreement
from mlagentbench.process.judgements import Judgement, RunJudgements
from mlagentbench.process.phrases import format_steps


def show_judgement(run: Run, judgements: RunJudgements) -> None:
    """Print the latest judgement of a run."""
    latest, count = judgements.latest, len(judgements.judgements)
    print(f"{run.name}: judged by {latest.model} (an opinion, not a measurement; judgement {count})")
    for mark in latest.marks:
        steps = f" ({format_steps(mark.steps)})" if mark.steps else ""
        print(f"  {mark.score}  {mark.criterion}: {strip_control_chars(mark.sentence)}{steps}")


def show_agreement(agreement: Agreement | None) -> None:
    """Print how far two judgements of the same runs agree, if there are two."""
    if agreement:
        kappa = "undefined" if agreement.kappa is None else f"{agreement.kappa:.2f}"
        print(
            f"agreement of two judgements of {agreement.runs} runs ({agreement.scores} scores):"
            f" {agreement.exact:.0%} identical, {agreement.within_one:.0%} within one point,"
            f" weighted kappa {kappa}"
        )


def show_judging_cost(judgements: Sequence[Judgement]) -> None:
    """Print the cost of judging, which is not part of the cost of the runs."""
    tokens = sum(judgement.tokens for judgement in judgements)
    dollars = sum(judgement.dollars for judgement in judgements)
    print(f"cost of judging (not part of the runs' cost): {tokens:,} tokens, ${dollars:.4f}")
