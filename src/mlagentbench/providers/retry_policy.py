"""Timeouts and retries of requests to hosted models."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """Limits for one prompt to a hosted model."""

    max_attempts: int = 8
    max_total_wait_s: float = 600.0  # no wait ends later than this after the first attempt
    read_timeout_s: float = 300.0  # without a byte; reasoning models are silent for minutes
    attempt_timeout_s: float = 900.0  # for one attempt, however slowly data arrives
    first_wait_s: float = 2.0  # upper bound of the wait after the first failure; it doubles with each one
    max_wait_s: float = 60.0
    sleep: Callable[[float], object] = time.sleep  # interrupted by Ctrl-C
    clock: Callable[[], float] = time.monotonic

    def next_wait_s(self, failures: int, retry_after_s: float | None) -> float:
        """The wait after this many failures; jitter keeps parallel runs from retrying in step."""
        bound = min(self.first_wait_s * 2 ** (failures - 1), self.max_wait_s)
        if retry_after_s is None:
            return random.uniform(0, bound)
        return retry_after_s + random.uniform(0, min(self.first_wait_s, bound))
