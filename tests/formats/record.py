"""Records a run in the current format, once for each format version: python tests/formats/record.py

The folder named after a format version holds a small real run of the toy with all its contents, and the .zip
beside it is its bundle. Neither is ever recorded again: what an earlier version wrote must stay readable.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from mlagentbench.bundles.read import unpack_bundle
from mlagentbench.bundles.write import export_run
from mlagentbench.formatting import print_progress
from mlagentbench.records import RUN_FORMAT, AgentSpec
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.runner.start import start_run

HERE = Path(__file__).resolve().parent


def record(target: Path) -> None:
    """Record a run as the folder `target`, and as a bundle beside it."""
    with TemporaryDirectory() as temporary:
        run = Path(temporary, "run")
        setup = prepare_setup(str(HERE.parent / "toy"), "open", "bwrap", print_progress, record_access=True)
        result = start_run(setup, AgentSpec(agent="agent.py", model="scripted:script.txt"), run)
        assert result.success, result
        _remove_machine(run / "run.json")
        export_run(RunFolder(run), target.with_suffix(".zip"))
        shutil.copytree(unpack_bundle(target.with_suffix(".zip"), Path(temporary, "unpacked")), target)
        _copy_access_log(run / "access", target / "access")


def _copy_access_log(source: Path, target: Path) -> None:
    """Copy the access log, which bundles do not hold, without the paths of this machine's Python."""
    target.mkdir()
    for file in source.iterdir():
        lines = [line for line in file.read_text().splitlines(keepends=True) if sys.base_prefix not in line]
        (target / file.name).write_text("".join(lines))


def _remove_machine(path: Path) -> None:
    """Remove the path of the task and the machine from run.json."""
    spec = json.loads(path.read_text())
    spec["task"] = "../toy"
    spec["hardware"] |= {"cpu": "a processor", "system": "Linux"}
    path.write_text(json.dumps(spec, indent=2))


if __name__ == "__main__":
    os.chdir(HERE)
    if (HERE / str(RUN_FORMAT)).exists():
        sys.exit(f"Format {RUN_FORMAT} is already recorded.")
    record(HERE / str(RUN_FORMAT))
