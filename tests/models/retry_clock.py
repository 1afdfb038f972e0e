"""Model names, a canary key that must never be recorded, and a clock that makes retries instant."""

from dataclasses import dataclass, field

from mlagentbench.providers.retry_policy import RetryPolicy

KEY = "sk-canary-0123456789-never-to-be-seen"
NAMES = {"chat": "openai-chat:gpt-4o", "responses": "openai:gpt-4o", "messages": "anthropic:claude-opus-5"}


@dataclass
class RetryClock:
    """Records waits instead of sleeping; its clock advances by them."""

    waits_s: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)

    def clock(self) -> float:
        return sum(self.waits_s)

    def policy(
        self, read_timeout_s: float = 10.0, attempt_timeout_s: float = 10.0, max_attempts: int = 8
    ) -> RetryPolicy:
        return RetryPolicy(
            max_attempts=max_attempts,
            read_timeout_s=read_timeout_s,
            attempt_timeout_s=attempt_timeout_s,
            sleep=self.sleep,
            clock=self.clock,
        )
