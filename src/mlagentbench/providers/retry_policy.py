"""How long a provider is waited for, and how often it is asked again."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """Limits of one question to a hosted model; all in seconds but the tries."""

    max_attempts: int = 8
    max_total_wait_s: float = 600.0  # from the first try on, no wait goes beyond this
    read_timeout_s: float = (
        300.0  # without a byte; models that think before they speak are silent for minutes
    )
    attempt_timeout_s: float = 900.0  # one try, however slowly it drips
    first_wait_s: float = 2.0  # the longest wait after the first failure; it doubles
    max_wait_s: float = 60.0
    sleep: Callable[[float], object] = time.sleep  # Ctrl-C ends it
    clock: Callable[[], float] = time.monotonic

    def next_wait_s(self, failures: int, retry_after_s: float | None) -> float:
        """How long to wait after so many failures: anything up to the limit, so that many runs do not come in step."""
        limit = min(self.first_wait_s * 2 ** (failures - 1), self.max_wait_s)
        return (
            random.uniform(0, limit)
            if retry_after_s is None
            else retry_after_s + random.uniform(0, min(self.first_wait_s, limit))
        )
