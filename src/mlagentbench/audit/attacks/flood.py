"""Attack: flood."""

import resource

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import Fault

MAX_OUTPUT_FILE_BYTES, MAX_SHOWN_CHARS, MAX_HARNESS_GROWTH_KB = (
    65 << 20,
    60_000,
    400 << 10,
)  # bytes on disk, characters shown, kilobytes that the harness may grow
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

    threats = (24,)
    task_independent = True
    runs_alone = True

    def run(self, env: Environment) -> None:
        """Before and after, the harness's own peak."""
        self.before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.run_script(env, CODE, COUNT=20 if self.context.quick else 250)
        self.after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.finish_without_submission(env)

    def describe_gain(self, end: AttackOutcome) -> str:
        """Whether any of it got big."""
        poured = max(step.execution.output_bytes for step in end.steps if step.execution)
        if poured < 20 << 20:
            raise Fault(f"the flood was only {poured:,} bytes")
        kept = max(path.stat().st_size for path in (end.folder.path / "outputs").iterdir())
        seen = max(len(step.observation) for step in end.steps)
        if kept > MAX_OUTPUT_FILE_BYTES or seen > MAX_SHOWN_CHARS:
            return f"{kept:,} bytes were kept and {seen:,} characters shown"
        return (
            f"the harness grew by {self.after - self.before:,} kB"
            if self.after - self.before > MAX_HARNESS_GROWTH_KB
            else ""
        )
