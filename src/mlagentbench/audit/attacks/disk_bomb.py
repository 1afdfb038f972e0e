"""Attack: disk bomb."""

import os
import threading
from contextlib import suppress
from pathlib import Path

from mlagentbench.audit.attacks.base import Aftermath, Attack
from mlagentbench.environment import Environment

LIMIT = 0.5  # GB, with room for the data of every task
SPILT = 1 << 30  # bytes over its limit that a script may write before it is killed; a slow machine looks late
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

    lines = (27,)
    general = True
    alone = True
    limits = {"disk_gb": LIMIT, "files": 20_000}  # noqa: RUF012 - a constant of the class

    def run(self, env: Environment) -> None:
        """Each way in a step of its own, while somebody looks at how much there is."""
        self.most, ended = 0, threading.Event()
        watcher = threading.Thread(target=self._watch, args=[env.world.workspace.root, ended])
        watcher.start()
        try:
            for how in ("bytes",) if self.scene.quick else ("bytes", "both", "files", "folders"):
                self.execute(env, CODE, HOW=how)
        finally:
            ended.set()
            watcher.join()
        self.leave(env)

    def _watch(self, workspace: Path, ended: threading.Event) -> None:
        while not ended.wait(0.05):
            size = 0
            with suppress(OSError), os.scandir(workspace) as entries:
                for entry in entries:
                    with suppress(OSError):
                        size += entry.stat(follow_symlinks=False).st_size
            self.most = max(self.most, size)

    def gained(self, end: Aftermath) -> str:
        """Whether any of it stayed, or the disk got far more than it should."""
        state = end.folder.store(end.scene.setup.data, writable=False).state(end.result.steps)
        if left := [name for name in state if name.startswith("bomb")]:
            return f"{len(left)} files of it stayed in the workspace"
        return f"the disk held {self.most / 1e6:,.0f} MB of it" if self.most > LIMIT * 1e9 + SPILT else ""
