"""Names, a key that must be seen nowhere, and patience that waits for nobody."""

from dataclasses import dataclass, field

from mlagentbench.providers.retry_policy import RetryPolicy

KEY = "sk-canary-0123456789-never-to-be-seen"
NAMES = {"chat": "openai-chat:gpt-4o", "responses": "openai:gpt-4o", "messages": "anthropic:claude-opus-5"}


@dataclass
class Waits:
    """Takes note of waits instead of waiting; its clock goes on by them."""

    seconds: list[float] = field(default_factory=list)

    def pause(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def clock(self) -> float:
        return sum(self.seconds)

    def patience(self, stall: float = 10.0, whole: float = 10.0, tries: int = 8) -> RetryPolicy:
        return RetryPolicy(
            max_attempts=tries,
            read_timeout_s=stall,
            attempt_timeout_s=whole,
            sleep=self.pause,
            clock=self.clock,
        )
