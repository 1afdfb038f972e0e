"""What a machine without any of it is given before a job begins there."""

from functools import partial
from pathlib import Path

import pytest

from mlagentbench.home import home
from mlagentbench.preparation.prepare import prepared
from mlagentbench.records import Contestant
from mlagentbench.runner.batch.cargo import Cargo, folders, pack, settle
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.setup import set_up
from mlagentbench.task import Task


def quiet(line: str) -> None:
    pass


@pytest.mark.parametrize("named", ["by its name", "by its hash"])
def test_data_that_was_drawn_here_is_found_there_however_it_is_named(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    drawn = prepared(Task.load(str(toy)), "open", quiet, fresh=True)
    instance = drawn.instance if named == "by its name" else drawn.hash
    setup = set_up(str(toy), "open", "bwrap", quiet, instance)
    job = Job(task=str(toy), instance=instance, who=Contestant(agent="nothing"), seed=0)
    cargo = Cargo(ticket="one", job=job, hashes=setup.hashes, baseline=None)
    packed = {name: [*pack(folder)] for name, folder in folders(job, setup).items()}
    there = tmp_path / "there"
    there.mkdir()
    (there / "runtimes").symlink_to(home() / "runtimes")
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(there))
    settled = settle(cargo, {name: partial(iter, chunks) for name, chunks in packed.items()}, quiet)
    assert settled.data.hash == drawn.hash and settled.data.folder.is_relative_to(there)
