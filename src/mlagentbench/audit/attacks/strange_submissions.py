"""Attack: a submission that is not a regular file."""

from mlagentbench.audit.attacks.base import CLEAR_WORKSPACE_CODE, Attack
from mlagentbench.environment.environment import Environment
from mlagentbench.task import Task

SPECIAL_FILES = (
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
    """Submits something other than a regular file: links to the answers, pipes, devices, huge files."""

    threats = (3, 13, 20)
    grades_each_step = True

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether the task asks for a file."""
        return task.config.submission != "."

    def run(self, env: Environment) -> None:
        """Create each of them in its own step."""
        target = str(self.context.setup.data.private / "answers.csv")
        for statement in SPECIAL_FILES:
            code = f"{CLEAR_WORKSPACE_CODE}\nattempt({statement!r}, lambda: exec({statement!r}))"
            self.run_script(env, code, thought=statement, TARGET=target, NAME=self.context.submission)
        self.run_script(env, CLEAR_WORKSPACE_CODE)
        self.finish_without_submission(env)
