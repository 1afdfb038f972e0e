"""Attack: look the task's data up in data sets of installed packages."""

from pathlib import Path

from mlagentbench.audit import dataset_scan
from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment
from mlagentbench.records import Call

LEAK_PREFIX = "LEAK "  # of the lines that the scan prints for a leak
FOLDER = "dataset_scan"


class PackageDatasets(Attack):
    """Compares the public data with every data set that the packages of the runtime can load."""

    threats = (2,)

    def run(self, env: Environment) -> None:
        """Run the scan with the Python of the runtime."""
        for path in sorted(Path(dataset_scan.__file__).parent.glob("*.py")):
            args = {"file_name": f"{FOLDER}/{path.name}", "content": path.read_text()}
            env.step(Call(action="Write File", args=args))
        self.observation = self.run_script(env, f"from {FOLDER}.scan import main\nmain()\n")
        self.finish_without_submission(env)

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report which data is in which package, or that the scan did not work."""
        lines = self.observation.splitlines()
        leaks = [line.removeprefix(LEAK_PREFIX) for line in lines if line.startswith(LEAK_PREFIX)]
        if leaks:
            return f"the answers can be looked up in the runtime: {'; '.join(leaks[:3])}"
        if not any(line.startswith("compared ") for line in lines):
            return f"the comparison with the data sets of packages failed: {lines[-1] if lines else ''}"
        return ""
