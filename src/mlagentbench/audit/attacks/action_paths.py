"""Attack: action paths."""

from pathlib import Path

from mlagentbench.audit.attacks.base import Aftermath, Attack
from mlagentbench.environment import Environment

TOUCHED = "touched-by-an-agent"


class ActionPaths(Attack):
    """Asks the harness's own actions for files outside the workspace: absolute, climbing, with the same prefix."""

    lines = (3, 10)
    general = True

    def run(self, env: Environment) -> None:
        """Every action that takes a path, with paths that leave."""
        outside = [*self.scene.targets[:1], *self.scene.targets[-2:]]
        climbing = ["../secret.txt", "../workspace-of-another/secret.txt", "data/../../secret.txt", "./.././secret.txt"]
        for path in [*outside, *climbing, "~/.bashrc", "/proc/self/environ", "file:///etc/passwd"]:
            self.act(env, "Read File", file_name=path)
        for path in climbing[:2]:
            self.act(env, "Inspect Script Lines", script_name=path, start_line_number=1, end_line_number=5)
            self.act(env, "Copy File", source=path, destination="copy.txt")
            self.act(env, "Undo Edit Script", script_name=path)
            self.act(env, "Execute Script", script_name=path)
        for folder in ("..", "/", "../workspace-of-another", str(self.scene.setup.data.private)):
            self.act(env, "List Files", dir_path=folder)
        for path in (f"../{TOUCHED}", f"/tmp/{TOUCHED}", f"../workspace-of-another/{TOUCHED}"):
            self.act(env, "Write File", file_name=path, content="here")
            self.act(env, "Append File", file_name=path, content="here")
            self.act(env, "Copy File", source="attack.py", destination=path)
        self.leave(env)

    def gained(self, end: Aftermath) -> str:
        """Whether a file came to be outside."""
        run = end.folder.path
        places = [run / TOUCHED, Path("/tmp", TOUCHED), run / "workspace-of-another" / TOUCHED]
        return "".join(f"it wrote {place}" for place in places if place.exists())
