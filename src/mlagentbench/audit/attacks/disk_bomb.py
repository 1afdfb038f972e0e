"""Attack: fill the disk."""

import os
import threading
from contextlib import suppress
from pathlib import Path

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment

DISK_LIMIT_GB = 0.5  # more than the data of any task
# A script may write this much over its limit before it is killed; a slow machine notices late.
MAX_OVERSHOOT_BYTES = 1 << 30
CODE = """
if HOW == "bytes":
    with open("bomb.bin", "wb") as file:
        for _ in range(2000):
            file.write(os.urandom(1 << 20))
elif HOW == "both":
    for number in range(1500):
        open(f"bomb-{number}", "w").close()
    block = os.urandom(1 << 20)
    os.fork()
    for number in range(100):
        with open(f"bomb-{os.getpid()}-{number}", "wb") as file:
            for _ in range(40):
                file.write(block)
elif HOW == "files":
    for number in range(1_000_000):
        open(f"bomb-{number}", "w").close()
else:
    for _ in range(20_000):
        os.mkdir("bomb")
        os.chdir("bomb")
"""


class DiskBomb(Attack):
    """Fills the workspace with bytes, a million files, both, and folders nested as deep as possible."""

    threats = (27,)
    task_independent = True
    runs_alone = True
    limits = {"disk_gb": DISK_LIMIT_GB, "files": 20_000}  # noqa: RUF012 - a constant of the class

    def run(self, env: Environment) -> None:
        """Try each method in its own step, while a thread measures the size of the workspace."""
        self.peak_bytes, ended = 0, threading.Event()
        watcher = threading.Thread(target=self._watch, args=[env.context.workspace.root, ended])
        watcher.start()
        try:
            for how in ("bytes",) if self.context.quick else ("bytes", "both", "files", "folders"):
                self.run_script(env, CODE, HOW=how)
        finally:
            ended.set()
            watcher.join()
        self.finish_without_submission(env)

    def _watch(self, workspace: Path, ended: threading.Event) -> None:
        while not ended.wait(0.05):
            size = 0
            with suppress(OSError), os.scandir(workspace) as entries:
                for entry in entries:
                    with suppress(OSError):
                        size += entry.stat(follow_symlinks=False).st_size
            self.peak_bytes = max(self.peak_bytes, size)

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report files that stayed in the workspace, or a disk limit exceeded by far."""
        store = outcome.folder.open_store(outcome.context.setup.data, writable=False)
        if left := [name for name in store.state(outcome.result.steps) if name.startswith("bomb")]:
            return f"{len(left)} of its files stayed in the workspace"
        too_large = self.peak_bytes > DISK_LIMIT_GB * 1e9 + MAX_OVERSHOOT_BYTES
        return f"the workspace held {self.peak_bytes / 1e6:,.0f} MB" if too_large else ""
