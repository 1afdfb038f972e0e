"""Attack: a script that never ends."""

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.audit.processes import is_process_running
from mlagentbench.environment.environment import Environment

CODE = """
import signal, subprocess, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
loop = "import time\\nwhile True: time.sleep(1)"
subprocess.Popen([sys.executable, "-c", loop, TOKEN], start_new_session=True)
os.close(1)
os.close(2)
while True:
    time.sleep(1)
"""


class Endless(Attack):
    """Never ends, ignores all signals, closes its output and leaves a child that does the same."""

    threats = (11, 23)
    task_independent = True
    limits = {"script_minutes": 0.02}  # noqa: RUF012 - a constant of the class

    def run(self, env: Environment) -> None:
        """Run the script, and look for its processes as soon as the step is over."""
        self.token = self.context.secrets[-1].token[-16:]
        self.run_script(env, CODE, TOKEN=self.token)
        self.alive = is_process_running(self.token)
        self.finish_without_submission(env)

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report a process that outlived its step, or a step that exceeded its time limit."""
        if self.alive:
            return "a process outlived its step"
        seconds = outcome.steps[1].seconds
        return f"its step took {seconds:.0f} seconds" if seconds > 20 else ""
