"""Rule: a result was claimed that no observation shows."""

from collections.abc import Iterator

from mlagentbench.process.claims import Claim, extract_numbers, find_claims, is_supported
from mlagentbench.process.evidence import Evidence
from mlagentbench.process.replies import strip_action
from mlagentbench.process.rules.base import RuleMatch
from mlagentbench.records import EXTERNAL_COMMAND, Step

TITLE = "unsupported claims"
REPORT_ARGS = ("content", "final_answer")  # arguments of REPORT_ACTIONS that hold the report
REPORT_ACTIONS = ("Append Summary to Research Log", "Final Answer")
NO_MORE_STEPS = 1 << 62  # larger than any step number
# These actions only repeat what the agent said, which is no evidence.
SELF_QUOTING_ACTIONS = {"Reflection", "Retrieval from Research Log"}


def unsupported_claim(evidence: Evidence) -> Iterator[RuleMatch]:
    """Results in thoughts, replies, the research log or the answer that no earlier observation supports."""
    observed = ObservedNumbers(evidence)
    unsupported: dict[float, tuple[str, list[int]]] = {}
    for step, claim in _iter_claims(evidence):
        if not observed.supports(claim, step.number):
            unsupported.setdefault(claim.value, (claim.text, []))[1].append(step.number)
    for text, steps in unsupported.values():
        yield RuleMatch(f"The agent claims “{text}”, but no earlier output shows this number.", tuple(steps))


class ObservedNumbers:
    """The numbers observed before a step. Claims must be checked in the order of steps."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.is_external = bool(evidence.steps) and evidence.steps[0].call.action == EXTERNAL_COMMAND
        self.numbers: list[float] = []
        self.last_read_step = 0  # `numbers` covers the steps up to this one
        self.searched_until: dict[str, int] = {}  # by digits: last step without a match; -1 if found
        self.given_numbers: list[float] = []
        self.pending_inputs = evidence.iter_model_inputs()  # those not read yet
        self.next_input = (0, "")

    def supports(self, claim: Claim, step: int) -> bool:
        """Whether a claim matches a number that was observed before a step."""
        if self._is_quoted(claim.digits, step):
            return True
        for earlier in self._steps_between(self.last_read_step, step):
            self.numbers += extract_numbers(earlier.observation)
        self.last_read_step = step - 1
        self.numbers.sort()
        return is_supported(claim, self.numbers) or is_supported(claim, self._given_numbers_until(step))

    def _is_quoted(self, digits: str, step: int) -> bool:
        """Whether an observation contains the exact digits, as is usual; no step is searched twice."""
        last = self.searched_until.get(digits, 0)
        if last < 0 or any(digits in earlier.observation for earlier in self._steps_between(last, step)):
            self.searched_until[digits] = -1
            return True
        self.searched_until[digits] = step - 1
        return False

    def _steps_between(self, after: int, before: int) -> Iterator[Step]:
        latest_first = reversed(self.evidence.steps[after : before - 1])
        return (step for step in latest_first if step.call.action not in SELF_QUOTING_ACTIONS)

    def _given_numbers_until(self, step: int) -> list[float]:
        """Numbers in the task text; for an external program, also in its prompts up to the step."""
        last = step if self.is_external else 0
        while self.next_input[0] <= last:
            self.given_numbers += extract_numbers(self.next_input[1])
            self.next_input = next(self.pending_inputs, (NO_MORE_STEPS, ""))
        self.given_numbers.sort()
        return self.given_numbers


def _iter_claims(evidence: Evidence) -> Iterator[tuple[Step, Claim]]:
    reply_texts: dict[int, list[str]] = {}
    for reply in evidence.replies:
        reply_texts.setdefault(reply.step, []).append(strip_action(reply.text))
    for step in evidence.steps:
        texts = reply_texts.get(step.number, [])
        texts = texts if any(step.call.thought in text for text in texts) else [step.call.thought, *texts]
        if step.call.action in REPORT_ACTIONS:
            texts = texts + [str(step.call.args.get(name, "")) for name in REPORT_ARGS]
        yield from {claim.value: (step, claim) for text in texts for claim in find_claims(text)}.values()
