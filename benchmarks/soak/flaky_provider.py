"""A model on the loopback that knows each run by the model's name, fails as providers do, and counts its answers."""

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

from benchmarks.soak.scripted_runs import ScriptedRun

sys.path.append(
    str(Path(__file__).parents[2] / "tests" / "servers")
)  # the tests' own server of loopback models

from api_formats import Completion
from fake_provider import BrokenReply, ErrorReply, FakeProvider, RecordedRequest, ScriptedReply, error_reply

STEP = re.compile(r"^Step (\d+)$", re.MULTILINE)
NOTHING = "no content"  # which is an answer, as a model gives that would begin with a stop sequence
FAILURES: dict[str, ScriptedReply] = {
    "429": error_reply(429, retry_after="0"),
    "500": error_reply(500),
    "cut off": BrokenReply("cut"),
    "garbage": BrokenReply("garbage"),
    NOTHING: BrokenReply("empty"),
    "too long": ErrorReply(400, "this model's maximum context length is exceeded"),
    "refused": ErrorReply(400, "the request was rejected"),  # for good: the run is a fault, and tried again
}
SLOW = (0.0, 0.0, 0.1, 0.8)  # seconds before an answer


class FlakyProvider(FakeProvider):
    """What it says follows from the step that a prompt shows, and how often it was asked for that."""

    def __init__(self, parts: Iterable[ScriptedRun], seed: str) -> None:
        super().__init__()
        self.parts = {part.name: part for part in parts}
        self.answered: Counter[str] = Counter()  # by run
        self.failed: Counter[str] = Counter()  # by kind
        self._asked: Counter[tuple[str, int]] = Counter()
        self._seed = seed

    def next_reply(self, seen: RecordedRequest) -> ScriptedReply:
        """A failure or two now and then, and then the answer; one bad reply, and then the good one."""
        name, messages = seen.body["model"], seen.body["messages"]
        shown = STEP.findall(str(messages[1]["content"]))
        step = int(shown[-1]) if shown else 0
        with self._lock:
            number = self._asked[name, step]
            self._asked[name, step] += 1
        dice = Random(f"{self._seed} {name} {step}")
        failures = [dice.choice(list(FAILURES)) for _ in range(dice.choice([0, 0, 0, 0, 1, 2]))]
        if number < len(failures):
            with self._lock:
                self.failed[failures[number]] += 1
                self.answered[name] += failures[number] == NOTHING
            return FAILURES[failures[number]]
        self.closing.wait(dice.choice(SLOW))
        replies = [
            reply for reply in self.parts[name].replies[step] if reply
        ]  # nothing at all is asked for again
        with self._lock:
            self.answered[name] += 1
        return Completion(replies[-1] if len(messages) > 2 else replies[0])
