"""What is sent to a node that has neither the task nor the data of a job."""

from functools import partial
from pathlib import Path

import pytest

from mlagentbench.preparation.prepare import prepare_data
from mlagentbench.records import AgentSpec, Levels
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.ray.payload import (
    JobPayload,
    find_folders_to_send,
    install_payload,
    pack_folder,
)
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.system.cache import cache_dir
from mlagentbench.task import Task


def quiet(line: str) -> None:
    pass


@pytest.mark.parametrize("named", ["by its name", "by its hash"])
def test_a_data_instance_is_sent_to_the_node_whether_named_by_name_or_hash(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    drawn = prepare_data(Task.load(str(toy)), "open", quiet, fresh=True)
    instance = drawn.instance if named == "by its name" else drawn.hash
    setup = prepare_setup(str(toy), "open", "bwrap", quiet, instance)
    job = Job(task=str(toy), instance=instance, agent_spec=AgentSpec(agent="nothing"), seed=0)
    payload = JobPayload(attempt_id="one", job=job, hashes=setup.hashes, levels=Levels())
    packed = {name: [*pack_folder(folder)] for name, folder in find_folders_to_send(job, setup).items()}
    there = tmp_path / "there"
    there.mkdir()
    (there / "runtimes").symlink_to(cache_dir() / "runtimes")
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(there))
    installed = install_payload(
        payload, {name: partial(iter, chunks) for name, chunks in packed.items()}, quiet
    )
    assert installed.data.hash == drawn.hash and installed.data.folder.is_relative_to(there)
