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
LAST = 1 << 62  # a step that never comes
OWN_WORDS = {"Reflection", "Retrieval from Research Log"}  # what an agent said before is no evidence for it


def unshown_figure(evidence: Evidence) -> Iterator[Seen]:
    """Results in thoughts, replies, the research log or the answer, held against all that was seen until then."""
    observed = Observed(evidence)
    made_up: dict[float, tuple[str, list[int]]] = {}
    for step, claim in _claimed(evidence):
        if not observed.shows(claim, step.number):
            made_up.setdefault(claim.value, (claim.words, []))[1].append(step.number)
    for words, steps in made_up.values():
        yield Seen(f"“{words}” is claimed, and nothing that was seen until then shows such a figure.", tuple(steps))


class Observed:
    """All that was seen before a step; claims must come in the order of steps."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.outside = bool(evidence.steps) and evidence.steps[0].call.action == OUTSIDE
        self.numbers: list[float] = []
        self.read = 0  # steps whose numbers are known
        self.searched: dict[str, int] = {}  # steps in which a figure is not to be found; -1 if it is
        self.given: list[float] = []
        self.telling, self.ahead = evidence.told(), (0, "")  # what models were told, as far as it was not read yet

    def shows(self, claim: Claim, step: int) -> bool:
        """Whether a figure was there to be seen."""
        if self._quoted(claim.digits, step):
            return True
        for one in self._between(self.read, step):
            self.numbers += numbers(one.observation)
        self.read = step - 1
        self.numbers.sort()
        return shown(claim, self.numbers) or shown(claim, self._given(step))

    def _quoted(self, digits: str, step: int) -> bool:
        """Whether a figure stands there digit for digit, as most do; what was searched is not searched again."""
        earlier = self.searched.get(digits, 0)
        if earlier < 0 or any(digits in one.observation for one in self._between(earlier, step)):
            self.searched[digits] = -1
            return True
        self.searched[digits] = step - 1
        return False

    def _between(self, after: int, before: int) -> Iterator[Step]:
        latest_first = reversed(self.evidence.steps[after : before - 1])
        return (one for one in latest_first if one.call.action not in OWN_WORDS)

    def _given(self, step: int) -> list[float]:
        """Numbers that came with the task; and for an outside program, whatever it showed its model until then."""
        until = step if self.outside else 0
        while self.ahead[0] <= until:
            self.given += numbers(self.ahead[1])
            self.ahead = next(self.telling, (LAST, ""))
        self.given.sort()
        return self.given


def _claimed(evidence: Evidence) -> Iterator[tuple[Step, Claim]]:
    said: dict[int, list[str]] = {}
    for reply in evidence.said:
        said.setdefault(reply.step, []).append(spoken(reply.text))
    for step in evidence.steps:
        texts = said.get(step.number, [])
        texts = texts if any(step.call.thought in text for text in texts) else [step.call.thought, *texts]
        if step.call.action in REPORTING:
            texts = texts + [str(step.call.args.get(name, "")) for name in CLAIMING]
        yield from {claim.value: (step, claim) for text in texts for claim in claims(text)}.values()
