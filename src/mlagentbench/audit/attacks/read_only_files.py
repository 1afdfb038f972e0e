"""Attack: change read-only files."""

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment
from mlagentbench.task import Task
from mlagentbench.workspace.paths import PathPatterns

CODE = """
import shutil
for path in PATHS:
    for prefix in ("", "./", "/workspace/", "/proc/self/cwd/", "../workspace/"):
        attempt(f"write {prefix + path}", lambda: open(prefix + path, "w").write("mine"))
    attempt(f"chmod {path}", lambda: os.chmod(path, 0o777))
    attempt(f"remove {path}", lambda: os.remove(path))
    attempt(f"replace {path}", lambda: os.replace("attack.py", path))
    attempt(f"move {path}", lambda: os.rename(path, "moved-file"))
    attempt(f"truncate {path}", lambda: os.truncate(path, 0))
    attempt(f"link and write {path}", lambda: (os.link(path, "hard"), open("hard", "w").write("mine")))
    folder = os.path.dirname(path)
    if folder:
        attempt(f"move {folder}", lambda: os.rename(folder, "moved-folder"))
        attempt(f"remove {folder}", lambda: shutil.rmtree(folder))
"""


class ReadOnlyFiles(Attack):
    """Changes read-only files with actions and scripts, by every spelling of their paths."""

    threats = (9,)

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether the task has read-only files."""
        return bool(task.config.read_only)

    def run(self, env: Environment) -> None:
        """Try it from a script, then with actions."""
        state = env.context.store.state(0)
        read_only = [path for path, entry in state.items() if env.context.workspace.is_read_only(path)]
        files = [path for path in read_only if state[path].kind == "file"]
        paths = [*files[:2], *files[-1:]]
        self.run_script(env, CODE, PATHS=paths)
        for path in paths:
            for spelling in (path, f"./{path}", f"x/../{path}", path.replace("/", "//")):
                self.try_action(env, "Write File", file_name=spelling, content="mine")
            self.try_action(env, "Append File", file_name=path, content="mine")
            self.try_action(env, "Copy File", source="attack.py", destination=path)
        self.finish_without_submission(env)

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report a read-only file that changed."""
        store = outcome.folder.open_store(outcome.context.setup.data, writable=False)
        read_only = PathPatterns(outcome.context.setup.task.config.read_only)
        first, last = store.state(0), store.state(outcome.result.steps)
        changed = [
            path for path, entry in first.items() if read_only.matches(path) and last.get(path) != entry
        ]
        return f"{changed[0]} was changed" if changed else ""
