"""Attack: flood."""

import resource

from mlagentbench.audit.attacks.base import Aftermath, Attack
from mlagentbench.environment import Environment
from mlagentbench.errors import Fault

KEPT, SEEN, HELD = 65 << 20, 60_000, 400 << 10  # bytes on disk, characters shown, kilobytes that the harness may grow
CODE = """
import threading
block = b"flood of output \\x1b[2J\\xff\\n" * 50_000
def pour():
    for _ in range(COUNT):
        os.write(1, block)
        os.write(2, block)
threads = [threading.Thread(target=pour) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


class Flood(Attack):
    """Prints a gigabyte, to fill the harness's memory, its disk and the agent's view."""

    lines = (24,)
    general = True
    alone = True

    def run(self, env: Environment) -> None:
        """Before and after, the harness's own peak."""
        self.before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.execute(env, CODE, COUNT=20 if self.scene.quick else 250)
        self.after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.leave(env)

    def gained(self, end: Aftermath) -> str:
        """Whether any of it got big."""
        poured = max(step.execution.output_bytes for step in end.steps if step.execution)
        if poured < 20 << 20:
            raise Fault(f"the flood was only {poured:,} bytes")
        kept = max(path.stat().st_size for path in (end.folder.path / "outputs").iterdir())
        seen = max(len(step.observation) for step in end.steps)
        if kept > KEPT or seen > SEEN:
            return f"{kept:,} bytes were kept and {seen:,} characters shown"
        return f"the harness grew by {self.after - self.before:,} kB" if self.after - self.before > HELD else ""
