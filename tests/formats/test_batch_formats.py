"""A batch and a plan of version 0.1, read by this version."""

import json
from pathlib import Path

import pytest

from mlagentbench.errors import UsageError
from mlagentbench.records import AgentSpec
from mlagentbench.runner.batch.folder import BatchFolder
from mlagentbench.runner.batch.plan import read_plan

BATCH = Path(__file__).parent / "batch-1"
RUN_NAMES = json.loads((BATCH / "run-names.json").read_text())


def test_the_batch_json_of_an_earlier_version_is_read_completely() -> None:
    record = BatchFolder(BATCH).read_record()
    assert (record.format, record.version) == (1, "0.1.0")
    assert record.plan.record_access and all(job.record_access for job in record.jobs)
    assert [agent.name for agent in record.plan.agents] == ["baseline", "react", "research"]
    assert record.jobs[1].agent_spec == AgentSpec(
        agent="react", options={"window": 3}, model="scripted:script.txt", edit_model="scripted:script.txt"
    )
    assert record.jobs[1].limits == {"hours": 0.5, "steps": 6}


def test_the_jobs_of_an_earlier_batch_keep_their_names() -> None:
    assert [job.name for job in BatchFolder(BATCH).read_record().jobs] == RUN_NAMES


def test_the_plan_of_an_earlier_version_is_read_and_expands_to_the_same_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(BATCH.parent)  # where script.txt is
    record = BatchFolder(BATCH).read_record()
    plan = read_plan(BATCH / "plan.toml", {})
    assert "ledger = true" in (BATCH / "plan.toml").read_text()  # the earlier name of record_access
    assert plan == read_plan(BATCH / "plan.toml", {"record_access": True})
    assert plan.replace(sandbox="bwrap") == record.plan  # what the default was
    jobs = plan.expand_jobs()
    assert tuple(jobs) == record.jobs and [job.name for job in jobs] == RUN_NAMES


def test_a_batch_that_is_written_again_has_the_current_keys_and_the_same_content(tmp_path: Path) -> None:
    record = BatchFolder(BATCH).read_record()
    BatchFolder(tmp_path).write_record(record)
    written = json.loads((tmp_path / "batch.json").read_text())
    assert written["plan"]["record_access"] is True and "ledger" not in written["plan"]
    reread = BatchFolder(tmp_path).read_record()
    assert reread == record and [job.name for job in reread.jobs] == RUN_NAMES


def test_a_batch_of_a_later_version_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "batch.json").write_text('{"format": 2, "version": "9.9", "plans": []}')
    with pytest.raises(UsageError, match="newer version"):
        BatchFolder(tmp_path).read_record()
