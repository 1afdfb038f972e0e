"""Attack: harness files."""

import re
from hashlib import sha256
from pathlib import Path

import mlagentbench
from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment
from mlagentbench.sandbox.access_log.recording import PROGRAM_MOUNT

CODE = """
import hashlib, importlib, stat
for name in ("mlagentbench", "mlagentbench.task", "mlagentbench.grading.checks", "grade", "prepare", "generator"):
    attempt(f"import {name}", lambda: importlib.import_module(name).__file__)
skipped = ("/proc", "/sys", "/dev", "/usr/share", "/usr/include", "/workspace")
for place, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if not os.path.join(place, name).startswith(skipped)]
    for name in files:
        path = os.path.join(place, name)
        try:
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and status.st_size in SIZES:
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()
                if digest in OURS:
                    print("found", digest, path)
        except OSError:
            pass
"""


class HarnessFiles(Attack):
    """Looks all over the file system for the harness's package, graders, generators, seeds and answers."""

    threats = (1, 2)
    task_independent = True

    def run(self, env: Environment) -> None:
        """One script that walks from the root; what it found is compared with what is ours."""
        setup = self.context.setup
        roots = Path(mlagentbench.__file__).parent, setup.task.folder, setup.data.private
        files = {path for root in roots for path in root.rglob("*") if path.is_file() and path.stat().st_size}
        ours = {sha256(path.read_bytes()).hexdigest() for path in files}
        self.run_script(env, CODE, SIZES={path.stat().st_size for path in files}, OURS=ours)
        self.finish_without_submission(env)

    def describe_gain(self, end: AttackOutcome) -> str:
        """Whether anything of ours was there."""
        output = (end.folder.path / "outputs" / "step-0002.txt").read_text(errors="replace")
        found = re.findall(r"^found (\w{64}) (.+)$", output, re.MULTILINE)
        shown = (
            sha256(PROGRAM_MOUNT[0].read_bytes()).hexdigest(),
            PROGRAM_MOUNT[1],
        )  # of the ledger, and it knows nothing of us
        strange = [path for digest, path in found if (digest, path) != shown]
        return f"{strange[0]} is one of the harness's own files" if strange else ""
