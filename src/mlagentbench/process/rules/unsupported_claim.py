"""Rule: a figure is claimed that no observation shows."""

from collections.abc import Iterator

from mlagentbench.process.claims import Claim, extract_numbers, find_claims, is_supported
from mlagentbench.process.evidence import EXTERNAL_COMMAND, Evidence
from mlagentbench.process.replies import strip_action
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.records import Step

TITLE = "figures that nothing shows"
REPORT_ARGS = ("content", "final_answer")  # arguments in which a research log or an answer reports
REPORT_ACTIONS = ("Append Summary to Research Log", "Final Answer")
NO_MORE_STEPS = 1 << 62  # a step that never comes
SELF_QUOTING_ACTIONS = {
    "Reflection",
    "Retrieval from Research Log",
}  # what an agent said before is no evidence for it


def unsupported_claim(evidence: Evidence) -> Iterator[RuleMatch]:
    """Results in thoughts, replies, the research log or the answer, held against all that was seen until then."""
    observed = ObservedNumbers(evidence)
    made_up: dict[float, tuple[str, list[int]]] = {}
    for step, claim in _iter_claims(evidence):
        if not observed.supports(claim, step.number):
            made_up.setdefault(claim.value, (claim.text, []))[1].append(step.number)
    for words, steps in made_up.values():
        yield RuleMatch(
            f"“{words}” is claimed, and nothing that was seen until then shows such a figure.", tuple(steps)
        )


class ObservedNumbers:
    """All that was seen before a step; claims must come in the order of steps."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.is_external = bool(evidence.steps) and evidence.steps[0].call.action == EXTERNAL_COMMAND
        self.numbers: list[float] = []
        self.last_read_step = 0  # steps whose numbers are known
        self.searched_until: dict[str, int] = {}  # steps in which a figure is not to be found; -1 if it is
        self.given_numbers: list[float] = []
        self.pending_inputs, self.next_input = (
            evidence.iter_model_inputs(),
            (0, ""),
        )  # what models were told, as far as it was not read yet

    def supports(self, claim: Claim, step: int) -> bool:
        """Whether a figure was there to be seen."""
        if self._is_quoted(claim.digits, step):
            return True
        for one in self._steps_between(self.last_read_step, step):
            self.numbers += extract_numbers(one.observation)
        self.last_read_step = step - 1
        self.numbers.sort()
        return is_supported(claim, self.numbers) or is_supported(claim, self._given_numbers_until(step))

    def _is_quoted(self, digits: str, step: int) -> bool:
        """Whether a figure stands there digit for digit, as most do; what was searched is not searched again."""
        earlier = self.searched_until.get(digits, 0)
        if earlier < 0 or any(digits in one.observation for one in self._steps_between(earlier, step)):
            self.searched_until[digits] = -1
            return True
        self.searched_until[digits] = step - 1
        return False

    def _steps_between(self, after: int, before: int) -> Iterator[Step]:
        latest_first = reversed(self.evidence.steps[after : before - 1])
        return (one for one in latest_first if one.call.action not in SELF_QUOTING_ACTIONS)

    def _given_numbers_until(self, step: int) -> list[float]:
        """Numbers that came with the task; and for an outside program, whatever it showed its model until then."""
        until = step if self.is_external else 0
        while self.next_input[0] <= until:
            self.given_numbers += extract_numbers(self.next_input[1])
            self.next_input = next(self.pending_inputs, (NO_MORE_STEPS, ""))
        self.given_numbers.sort()
        return self.given_numbers


def _iter_claims(evidence: Evidence) -> Iterator[tuple[Step, Claim]]:
    said: dict[int, list[str]] = {}
    for reply in evidence.replies:
        said.setdefault(reply.step, []).append(strip_action(reply.text))
    for step in evidence.steps:
        texts = said.get(step.number, [])
        texts = texts if any(step.call.thought in text for text in texts) else [step.call.thought, *texts]
        if step.call.action in REPORT_ACTIONS:
            texts = texts + [str(step.call.args.get(name, "")) for name in REPORT_ARGS]
        yield from {claim.value: (step, claim) for text in texts for claim in find_claims(text)}.values()
