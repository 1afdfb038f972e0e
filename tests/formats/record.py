"""Records a run in today's format, once for each version: python tests/formats/record.py

A small run of the toy, made for real and exported with all its contents, lies in a folder named as the version of its
format. It is never made again: what an earlier program wrote is what must stay readable.
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
    """The run as a folder, and beside it as a bundle."""
    with TemporaryDirectory() as room:
        place = Path(room, "run")
        setup = prepare_setup(str(HERE.parent / "toy"), "open", "bwrap", print_progress, record_access=True)
        result = start_run(setup, AgentSpec(agent="agent.py", model="scripted:script.txt"), place)
        assert result.success, result
        _neutralise(place / "run.json")
        export_run(RunFolder(place), target.with_suffix(".zip"))
        shutil.copytree(unpack_bundle(target.with_suffix(".zip"), Path(room, "whole")), target)
        _keep_access(place / "access", target / "access")


def _keep_access(source: Path, target: Path) -> None:
    """No bundle holds it; where the Python of this machine came from is left out."""
    target.mkdir()
    for file in source.iterdir():
        lines = [line for line in file.read_text().splitlines(keepends=True) if sys.base_prefix not in line]
        (target / file.name).write_text("".join(lines))


def _neutralise(path: Path) -> None:
    """Leave out where and on what it was recorded."""
    spec = json.loads(path.read_text())
    spec["task"] = "../toy"
    spec["hardware"] |= {"cpu": "a processor", "system": "Linux"}
    path.write_text(json.dumps(spec, indent=2))


if __name__ == "__main__":
    os.chdir(HERE)
    if (HERE / str(RUN_FORMAT)).exists():
        sys.exit(f"format {RUN_FORMAT} is recorded already")
    record(HERE / str(RUN_FORMAT))
