"""A loopback model that knows each run by its model name, fails as providers do, and counts its replies."""

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

from benchmarks.soak.scripted_runs import ScriptedRun

# The fake provider of the tests.
sys.path.append(str(Path(__file__).parents[2] / "tests" / "servers"))

from api_formats import Completion
from fake_provider import BrokenReply, ErrorReply, FakeProvider, RecordedRequest, ScriptedReply, error_reply

STEP = re.compile(r"^Step (\d+)$", re.MULTILINE)
NO_CONTENT = "no content"  # counts as a reply: a model that starts with a stop sequence returns the same
FAILURES: dict[str, ScriptedReply] = {
    "429": error_reply(429, retry_after="0"),
    "500": error_reply(500),
    "cut off": BrokenReply("cut"),
    "garbage": BrokenReply("garbage"),
    NO_CONTENT: BrokenReply("empty"),
    "too long": ErrorReply(400, "this model's maximum context length is exceeded"),
    "refused": ErrorReply(429, "no credit is left", code="insufficient_quota"),  # a fault: the run is retried
}
REPLY_DELAYS_S = (0.0, 0.0, 0.1, 0.8)


class FlakyProvider(FakeProvider):
    """Its reply depends on the step shown in the prompt and on how often that step was requested."""

    def __init__(self, runs: Iterable[ScriptedRun], seed: str) -> None:
        super().__init__()
        self.runs = {run.name: run for run in runs}
        self.reply_counts: Counter[str] = Counter()  # by run
        self.failure_counts: Counter[str] = Counter()  # by kind
        self._request_counts: Counter[tuple[str, int]] = Counter()
        self._seed = seed

    def next_reply(self, request: RecordedRequest) -> ScriptedReply:
        """Fail once or twice now and then, then reply; a bad reply is followed by the good one."""
        name, messages = request.body["model"], request.body["messages"]
        shown_steps = STEP.findall(str(messages[1]["content"]))
        step = int(shown_steps[-1]) if shown_steps else 0
        with self._lock:
            number = self._request_counts[name, step]
            self._request_counts[name, step] += 1
        random = Random(f"{self._seed} {name} {step}")
        failures = [random.choice(list(FAILURES)) for _ in range(random.choice([0, 0, 0, 0, 1, 2]))]
        if number < len(failures):
            with self._lock:
                self.failure_counts[failures[number]] += 1
                self.reply_counts[name] += failures[number] == NO_CONTENT
            return FAILURES[failures[number]]
        self.closing.wait(random.choice(REPLY_DELAYS_S))
        replies = [reply for reply in self.runs[name].replies[step] if reply]  # an empty reply is retried
        with self._lock:
            self.reply_counts[name] += 1
        return Completion(replies[-1] if len(messages) > 2 else replies[0])
