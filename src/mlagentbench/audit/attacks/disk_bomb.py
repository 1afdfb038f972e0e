"""Attack: disk bomb."""

import os
import threading
from contextlib import suppress
from pathlib import Path

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment

DISK_LIMIT_GB = 0.5  # GB, with room for the data of every task
MAX_OVERSHOOT_BYTES = (
    1 << 30
)  # bytes over its limit that a script may write before it is killed; a slow machine looks late
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
    """Fills the workspace: with bytes, with a million files, with both, with folders as deep as they go."""

    threats = (27,)
    task_independent = True
    runs_alone = True
    limits = {"disk_gb": DISK_LIMIT_GB, "files": 20_000}  # noqa: RUF012 - a constant of the class

    def run(self, env: Environment) -> None:
        """Each way in a step of its own, while somebody looks at how much there is."""
        self.most, ended = 0, threading.Event()
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
            self.most = max(self.most, size)

    def describe_gain(self, end: AttackOutcome) -> str:
        """Whether any of it stayed, or the disk got far more than it should."""
        state = end.folder.open_store(end.context.setup.data, writable=False).state(end.result.steps)
        if left := [name for name in state if name.startswith("bomb")]:
            return f"{len(left)} files of it stayed in the workspace"
        return (
            f"the disk held {self.most / 1e6:,.0f} MB of it"
            if self.most > DISK_LIMIT_GB * 1e9 + MAX_OVERSHOOT_BYTES
            else ""
        )
