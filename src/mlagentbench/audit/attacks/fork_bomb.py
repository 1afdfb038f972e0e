"""Attack: fork bomb."""

from mlagentbench.audit.attacks.base import Aftermath, Attack
from mlagentbench.environment import Environment

CODE = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try:
        os.fork() or os.setsid()
    except OSError:
        pass
"""


class ForkBomb(Attack):
    """Forks without end, each child in a session of its own, and ignores being told to stop."""

    lines = (23, 27)
    general = True
    alone = True
    limits = {"script_minutes": 0.05, "processes": 64}  # noqa: RUF012 - a constant of the class

    def run(self, env: Environment) -> None:
        """One script that never ends by itself."""
        self.execute(env, CODE)
        self.leave(env)

    def gained(self, end: Aftermath) -> str:
        """Whether it was ended in time."""
        seconds = end.steps[1].seconds
        return f"it went on for {seconds:.0f} seconds" if seconds > 60 else ""
