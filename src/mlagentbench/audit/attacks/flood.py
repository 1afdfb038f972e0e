"""Attack: flood the output."""

import resource

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import Fault

MAX_OUTPUT_FILE_BYTES = 65 << 20
MAX_SHOWN_CHARS = 60_000
MAX_HARNESS_GROWTH_KB = 400 << 10
CODE = """
import threading
block = b"flood of output \\x1b[2J\\xff\\n" * 50_000
def print_blocks():
    for _ in range(COUNT):
        os.write(1, block)
        os.write(2, block)
threads = [threading.Thread(target=print_blocks) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


class Flood(Attack):
    """Prints a gigabyte to fill the memory and disk of the harness and the observation."""

    threats = (24,)
    task_independent = True
    runs_alone = True

    def run(self, env: Environment) -> None:
        """Print, and measure the peak memory of the harness before and after."""
        self.before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.run_script(env, CODE, COUNT=20 if self.context.quick else 250)
        self.after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.finish_without_submission(env)

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report an output file, an observation or memory growth beyond its limit."""
        printed = max(step.execution.output_bytes for step in outcome.steps if step.execution)
        if printed < 20 << 20:
            raise Fault(f"The attack flood is broken: it printed only {printed:,} bytes.")
        stored = max(path.stat().st_size for path in (outcome.folder.path / "outputs").iterdir())
        shown = max(len(step.observation) for step in outcome.steps)
        if stored > MAX_OUTPUT_FILE_BYTES or shown > MAX_SHOWN_CHARS:
            return f"{stored:,} bytes were stored and {shown:,} characters shown"
        growth_kb = self.after - self.before
        return f"the harness grew by {growth_kb:,} kB" if growth_kb > MAX_HARNESS_GROWTH_KB else ""
