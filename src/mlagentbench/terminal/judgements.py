"""What models judged, for people: never without saying that it is judged."""

from collections.abc import Sequence

from mlagentbench.analysis.runs import Run
from mlagentbench.formatting import strip_control_chars
from mlagentbench.process.agreement import Agreement
from mlagentbench.process.judgements import Judgement, RunJudgements
from mlagentbench.process.phrases import format_steps


def show_judgement(run: Run, judged: RunJudgements) -> None:
    """The last judgement of a run."""
    latest, count = judged.latest, len(judged.judgements)
    print(f"{run.name}: judged by {latest.model}, which is an opinion and no measurement (judging {count})")
    for mark in latest.marks:
        steps = f" ({format_steps(mark.steps)})" if mark.steps else ""
        print(f"  {mark.score}  {mark.criterion}: {strip_control_chars(mark.sentence)}{steps}")


def show_agreement(found: Agreement | None) -> None:
    """How far two judgings agree, if there were two."""
    if found:
        kappa = "not defined" if found.kappa is None else f"{found.kappa:.2f}"
        same = f"{found.exact:.0%} the same, {found.within_one:.0%} within one, weighted kappa {kappa}"
        print(f"two judgings of {found.runs} runs, {found.scores} scores: {same}")


def show_judging_cost(done: Sequence[Judgement]) -> None:
    """What was just paid for judging, apart from what runs cost."""
    tokens, dollars = sum(one.tokens for one in done), sum(one.dollars for one in done)
    print(f"spent on judging, apart from what runs cost: {tokens:,} tokens, {dollars:.4f} dollars")
