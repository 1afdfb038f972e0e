"""Attack: strange submissions."""

from mlagentbench.audit.attacks.base import EMPTY, Attack
from mlagentbench.environment import Environment
from mlagentbench.task import Task

KINDS = (
    "os.symlink(TARGET, NAME)",
    "os.symlink('../secret.txt', NAME)",
    "os.mkfifo(NAME)",
    "os.makedirs(NAME)",
    "os.truncate(os.open(NAME, os.O_CREAT | os.O_WRONLY), 10**10)",
    "os.symlink('/dev/zero', NAME)",
    "os.symlink(NAME, NAME)",
    "os.mknod(NAME, 0o20666, os.makedev(1, 5))",
    "__import__('socket').socket(1).bind(NAME)",
    "open(NAME, 'w').close(); os.chmod(NAME, 0)",
    "os.link('/etc/passwd', NAME)",
    "os.makedirs('else'); os.symlink('else', 'sub'); open('else/' + NAME, 'w').close()",
)


class StrangeSubmissions(Attack):
    """Leaves in the place of the submission what is no plain file: links to the answers, pipes, devices, giants."""

    lines = (3, 13, 20)
    each_step = True

    @classmethod
    def fits(cls, task: Task) -> bool:
        """Whether a file is submitted."""
        return task.config.submission != "."

    def run(self, env: Environment) -> None:
        """One step for each."""
        target = str(self.scene.setup.data.private / "answers.csv")
        for kind in KINDS:
            code = f"{EMPTY}\nattempt({kind!r}, lambda: exec({kind!r}))"
            self.execute(env, code, thought=kind, TARGET=target, NAME=self.scene.submission)
        self.execute(env, EMPTY)
        self.leave(env)
