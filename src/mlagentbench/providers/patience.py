"""How long a provider is waited for, and how often it is asked again."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """Limits of one question to a hosted model; all in seconds but the tries."""

    tries: int = 8
    waiting: float = 600.0  # from the first try on, no wait goes beyond this
    stall: float = 300.0  # without a byte; models that think before they speak are silent for minutes
    whole: float = 900.0  # one try, however slowly it drips
    first: float = 2.0  # the longest wait after the first failure; it doubles
    longest: float = 60.0
    pause: Callable[[float], object] = time.sleep  # Ctrl-C ends it
    clock: Callable[[], float] = time.monotonic

    def wait(self, failures: int, asked: float | None) -> float:
        """How long to wait after so many failures: anything up to the limit, so that many runs do not come in step."""
        limit = min(self.first * 2 ** (failures - 1), self.longest)
        return random.uniform(0, limit) if asked is None else asked + random.uniform(0, min(self.first, limit))
