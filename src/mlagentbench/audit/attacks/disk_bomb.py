"""Attack: disk bomb."""

from mlagentbench.audit.attacks.base import Aftermath, Attack
from mlagentbench.environment import Environment

CODE = """
if HOW == "bytes":
    with open("bomb.bin", "wb") as file:
        for _ in range(2000):
            file.write(os.urandom(1 << 20))
elif HOW == "files":
    for number in range(1_000_000):
        open(f"bomb-{number}", "w").close()
else:
    for _ in range(20_000):
        os.mkdir("bomb")
        os.chdir("bomb")
"""


class DiskBomb(Attack):
    """Fills the workspace: with bytes, with a million files, with folders as deep as they go."""

    lines = (27,)
    general = True
    alone = True
    limits = {"disk_gb": 0.05, "files": 2000}  # noqa: RUF012 - a constant of the class

    def run(self, env: Environment) -> None:
        """Each way in a step of its own."""
        for how in ("bytes",) if self.scene.quick else ("bytes", "files", "folders"):
            self.execute(env, CODE, HOW=how)
        self.leave(env)

    def gained(self, end: Aftermath) -> str:
        """Whether any of it stayed."""
        state = end.folder.store(end.scene.setup.data, writable=False).state(end.result.steps)
        left = [name for name in state if name.startswith("bomb")]
        return f"{len(left)} files of it stayed in the workspace" if left else ""
