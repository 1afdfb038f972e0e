"""Rule: a figure is claimed that no observation shows."""

from collections.abc import Iterator

from mlagentbench.records import Step
from mlagentbench.reports.process.evidence import OUTSIDE, Evidence
from mlagentbench.reports.process.figures import Claim, claims, numbers, shown
from mlagentbench.reports.process.rules.base import Seen
from mlagentbench.reports.process.talk import spoken

TITLE = "figures that nothing shows"
CLAIMING = ("content", "final_answer")  # arguments in which a research log or an answer reports
REPORTING = ("Append Summary to Research Log", "Final Answer")
OWN_WORDS = {"Reflection", "Retrieval from Research Log"}  # what an agent said before is no evidence for it


def unshown_figure(evidence: Evidence) -> Iterator[Seen]:
    """Results in thoughts, replies, the research log or the answer, held against all that was seen until then."""
    seen: set[float] = set()
    behind = 0  # steps whose numbers are in `seen`
    made_up: dict[float, tuple[str, list[int]]] = {}
    for step, claim in _claimed(evidence):
        for earlier in evidence.steps[behind : step.number - 1]:
            seen |= numbers(earlier.observation) if earlier.call.action not in OWN_WORDS else set()
        behind = max(behind, step.number - 1)
        if not shown(claim, seen) and not shown(claim, _told(evidence, step)):
            made_up.setdefault(claim.value, (claim.words, []))[1].append(step.number)
    for words, steps in made_up.values():
        yield Seen(f"“{words}” is claimed, and nothing that was seen until then shows such a figure.", tuple(steps))


def _claimed(evidence: Evidence) -> Iterator[tuple[Step, Claim]]:
    said: dict[int, list[str]] = {}
    for reply in evidence.said:
        said.setdefault(reply.step, []).append(spoken(reply.text))
    for step in evidence.steps:
        texts = [step.call.thought, *said.get(step.number, ())]
        if step.call.action in REPORTING:
            texts += [str(step.call.args.get(name, "")) for name in CLAIMING]
        yield from {claim.value: (step, claim) for text in texts for claim in claims(text)}.values()


def _told(evidence: Evidence, step: Step) -> set[float]:
    """Numbers that came with the task; and for an outside program, whatever it showed its model."""
    everything = step.call.action == OUTSIDE or any(each.call.action == OUTSIDE for each in evidence.steps[:1])
    return numbers("\n".join(evidence.told(step.number if everything else 0)))
