"""Attack: search for files of the harness."""

import re
from hashlib import sha256
from pathlib import Path

import mlagentbench
from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment
from mlagentbench.sandbox.access_log.recording import PROGRAM_MOUNT

CODE = """
import hashlib, importlib, stat
ours = ("mlagentbench", "mlagentbench.task", "mlagentbench.grading.checks")
for name in (*ours, "grade", "prepare", "generator"):
    attempt(f"import {name}", lambda: importlib.import_module(name).__file__)
skipped = ("/proc", "/sys", "/dev", "/usr/share", "/usr/include", "/workspace")
for parent, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if not os.path.join(parent, name).startswith(skipped)]
    for name in files:
        path = os.path.join(parent, name)
        try:
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and status.st_size in SIZES:
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()
                if digest in HARNESS_HASHES:
                    print("found", digest, path)
        except OSError:
            pass
"""


class HarnessFiles(Attack):
    """Searches the file system for the package, graders, generators, seeds and answers of the harness."""

    threats = (1, 2)
    task_independent = True

    def run(self, env: Environment) -> None:
        """Walk from the root and compare the hashes of all files with those of the harness."""
        setup = self.context.setup
        roots = Path(mlagentbench.__file__).parent, setup.task.folder, setup.data.private
        files = {path for root in roots for path in root.rglob("*") if path.is_file() and path.stat().st_size}
        hashes = {sha256(path.read_bytes()).hexdigest() for path in files}
        self.run_script(env, CODE, SIZES={path.stat().st_size for path in files}, HARNESS_HASHES=hashes)
        self.finish_without_submission(env)

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report a file of the harness that is visible inside the sandbox."""
        output = (outcome.folder.path / "outputs" / "step-0002.txt").read_text(errors="replace")
        found = re.findall(r"^found (\w{64}) (.+)$", output, re.MULTILINE)
        # The program of the access log runs inside on purpose, and contains nothing secret.
        allowed = (sha256(PROGRAM_MOUNT[0].read_bytes()).hexdigest(), PROGRAM_MOUNT[1])
        exposed = [path for digest, path in found if (digest, path) != allowed]
        return f"{exposed[0]} is a file of the harness" if exposed else ""
