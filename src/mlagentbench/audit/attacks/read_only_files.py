"""Attack: read-only files."""

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment
from mlagentbench.task import Task
from mlagentbench.workspace.paths import PathPatterns

CODE = """
import shutil
for path in PATHS:
    for spelt in (path, "./" + path, "/workspace/" + path, "/proc/self/cwd/" + path, "../workspace/" + path):
        attempt(f"write {spelt}", lambda: open(spelt, "w").write("mine"))
    attempt(f"chmod {path}", lambda: os.chmod(path, 0o777))
    attempt(f"remove {path}", lambda: os.remove(path))
    attempt(f"replace {path}", lambda: os.replace("attack.py", path))
    attempt(f"move {path}", lambda: os.rename(path, "elsewhere"))
    attempt(f"shorten {path}", lambda: os.truncate(path, 0))
    attempt(f"link and write {path}", lambda: (os.link(path, "hard"), open("hard", "w").write("mine")))
    folder = os.path.dirname(path)
    if folder:
        attempt(f"move {folder}", lambda: os.rename(folder, "moved"))
        attempt(f"remove {folder}", lambda: shutil.rmtree(folder))
"""


class ReadOnlyFiles(Attack):
    """Changes read-only files: by actions and scripts, and by every other spelling of their path."""

    threats = (9,)

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether there are any."""
        return bool(task.config.read_only)

    def run(self, env: Environment) -> None:
        """By script, by action."""
        state = env.context.store.state(0)
        guarded = [path for path, entry in state.items() if env.context.workspace.is_read_only(path)]
        files = [path for path in guarded if state[path].kind == "file"]
        paths = [*files[:2], *files[-1:]]
        self.run_script(env, CODE, PATHS=paths)
        for path in paths:
            for spelt in (path, f"./{path}", f"x/../{path}", path.replace("/", "//")):
                self.try_action(env, "Write File", file_name=spelt, content="mine")
            self.try_action(env, "Append File", file_name=path, content="mine")
            self.try_action(env, "Copy File", source="attack.py", destination=path)
        self.finish_without_submission(env)

    def describe_gain(self, end: AttackOutcome) -> str:
        """Whether one is not what it was."""
        store = end.folder.open_store(end.context.setup.data, writable=False)
        guarded = PathPatterns(end.context.setup.task.config.read_only)
        first, last = store.state(0), store.state(end.result.steps)
        changed = [path for path, entry in first.items() if guarded.matches(path) and last.get(path) != entry]
        return f"{changed[0]} is not what it was" if changed else ""
