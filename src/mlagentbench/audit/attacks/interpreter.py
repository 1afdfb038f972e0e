"""Attack: take over the Python REPL."""

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment

INSPECT_CODE = """
import gc, os, sys
print([name for name in sys.modules if name.startswith("mlagentbench")])
print([str(thing)[:80] for thing in gc.get_objects() if type(thing).__module__.startswith("mlagentbench")])
print(os.getpid(), os.getppid(), os.getuid(), sys.argv, sys.path, dict(os.environ))
"""
WALK_FRAMES_CODE = """
frame = sys._getframe()
while frame:
    print(sorted(frame.f_globals)[:50], sorted(map(str, frame.f_locals))[:50])
    frame = frame.f_back
"""
FORGE_REPLY_CODE = """
import json
for fd in range(1, 20):
    try:
        os.write(fd, b'{"score": 1.0}\\n' + bytes(64))
    except OSError:
        pass
"""


class Interpreter(Attack):
    """Searches the interpreter of Python REPL for objects of the harness, and forges its replies."""

    threats = (1, 25)
    task_independent = True

    def run(self, env: Environment) -> None:
        """Inspect modules and frames, write to every descriptor, and exit in every way."""
        self.observations = [
            self.try_action(env, "Python REPL", command=code)
            for code in (INSPECT_CODE, WALK_FRAMES_CODE, FORGE_REPLY_CODE)
        ]
        for code in ("os._exit(0)", "import sys; sys.exit(3)", "raise SystemExit", "os.kill(os.getpid(), 9)"):
            self.try_action(env, "Python REPL", command=f"import os\n{code}")
        self.finish_without_submission(env)

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report modules of the harness in the interpreter."""
        return (
            "modules of the harness are loaded in the interpreter"
            if "mlagentbench." in "".join(self.observations)
            else ""
        )
