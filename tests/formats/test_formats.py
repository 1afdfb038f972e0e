"""Runs of earlier versions are shown, graded, verified, reported, exported and resumed by this one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from pydantic import ValidationError

from mlagentbench.bundles.read import unpack_bundle
from mlagentbench.errors import Fault, UsageError
from mlagentbench.records import RUN_FORMAT, RunSpec, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup
from mlagentbench.sandbox.access_log.records import read_access

FORMATS = Path(__file__).parent
VERSIONS = sorted((path.name for path in FORMATS.iterdir() if path.name.isdecimal()), key=int)
BUNDLES = sorted(FORMATS.glob("*.zip"))
Cli = Callable[..., CompletedProcess[str]]


def edit(path: Path, **changes: Any) -> None:
    """Change some keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=2))


@pytest.fixture(params=VERSIONS)
def old_run(request: pytest.FixtureRequest, setup: Setup, tmp_path: Path) -> Path:
    """A copy of a recorded run, with the current hashes of its task, grader and runtime."""
    folder = Path(shutil.copytree(FORMATS / request.param, tmp_path / "old"))
    for name in ("run.json", "result.json"):
        edit(folder / name, hashes=setup.hashes.model_dump())
    return folder


@pytest.fixture
def call(cli: Cli) -> Cli:
    """Runs a command that must succeed, in the folder from which recorded runs name their task and model."""

    def run_command(*args: object) -> CompletedProcess[str]:
        completed = cli(*args, cwd=FORMATS)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return completed

    return run_command


def test_every_format_version_is_recorded() -> None:
    assert [str(number) for number in range(1, RUN_FORMAT + 1)] == VERSIONS


def test_an_old_run_is_read_completely(old_run: Path) -> None:
    folder = RunFolder(old_run)
    steps, calls = folder.steps(), list(folder.calls())
    assert (len(steps), len(calls), folder.result and folder.result.score) == (8, 9, 0.0)
    assert [step.call.action for step in steps if step.failed] == ["Dance"]
    assert (
        folder.open_store(writable=False).read_content(8, "notes/ideas.txt").decode()
        == "the id itself: é\ndone\n"
    )
    assert {access.path for access in read_access(old_run, 5)} >= {"/workspace/train.py"}


def test_an_old_run_is_shown(old_run: Path, call: Cli) -> None:
    assert "Edit Script (AI)" in call("show", old_run).stdout
    assert json.loads(call("show", old_run, "--json").stdout)["result"]["steps"] == 8
    assert "+the id itself: é" in call("show", old_run, "--step", 2, "--diff").stdout


def test_an_old_run_is_graded_at_its_end_and_at_every_step(old_run: Path, call: Cli) -> None:
    assert json.loads(call("grade", old_run, "--json").stdout)[0]["score"] == 0.0
    grades = json.loads(call("grade", old_run, "--every-step", "--json").stdout)
    assert grades[-1]["score"] == 0.0 and grades[0]["score"] is None


def test_every_claim_of_an_old_run_is_verified(old_run: Path, call: Cli) -> None:
    checks = json.loads(call("verify", old_run, "--trust-agent", "--json").stdout)
    assert len(checks) > 20 and "the agent takes the same steps" in checks[-1]["what"]


@pytest.mark.usefixtures("unsaved_figures")
def test_an_old_run_is_reported_and_exported(old_run: Path, call: Cli, tmp_path: Path) -> None:
    call("report", old_run, "--out", tmp_path / "report")
    assert "toy" in (tmp_path / "report" / "index.html").read_text()
    call("export", old_run, "-o", tmp_path / "again.zip")
    assert (
        RunFolder(unpack_bundle(tmp_path / "again.zip", tmp_path / "again")).steps()
        == RunFolder(old_run).steps()
    )


def test_an_old_run_is_resumed_from_an_earlier_step(old_run: Path, call: Cli) -> None:
    before = RunFolder(old_run).steps()
    result = json.loads(call("resume", old_run, "--from-step", 6, "--json").stdout)
    assert (result["score"], result["ending"], result["steps"]) == (0.0, "submitted", 8)
    after = RunFolder(old_run).steps()
    assert after[:6] == before[:6] and [step.call for step in after] == [step.call for step in before]


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.stem)
def test_an_old_bundle_holds_the_run(bundle: Path, tmp_path: Path) -> None:
    assert RunFolder(unpack_bundle(bundle, tmp_path)).steps() == RunFolder(FORMATS / bundle.stem).steps()


def test_a_run_of_a_later_version_is_refused_in_one_line_whatever_it_contains(
    old_run: Path, cli: Cli
) -> None:
    edit(old_run / "run.json", format=RUN_FORMAT + 1, version="9.9\x1b[2J", colour="blue", seed=None)
    completed = cli("show", old_run)
    assert completed.returncode == 2 and len(completed.stderr.splitlines()) == 1
    assert (
        "newer version of mlagentbench (9.9�[2J" in completed.stderr
        and "pip install --upgrade" in completed.stderr
    )


def test_a_field_that_this_version_does_not_know_is_never_ignored(old_run: Path) -> None:
    edit(old_run / "run.json", colour="blue")
    with pytest.raises(UsageError, match="is damaged: colour: no such key"):
        RunFolder(old_run)
    with pytest.raises(ValidationError):
        Step.model_validate_json('{"number": 1, "call": {"action": "a"}, "observation": "", "colour": 1}')


def test_an_unknown_field_of_a_step_is_a_fault_that_names_its_line(old_run: Path) -> None:
    lines = (old_run / "trace.jsonl").read_text().splitlines(keepends=True)
    (old_run / "trace.jsonl").write_text(
        "".join([lines[0], lines[1].replace('{"number"', '{"colour": 1, "number"')])
    )
    with pytest.raises(Fault, match="line 2 is damaged: colour: no such key"):
        RunFolder(old_run).steps()


@pytest.mark.parametrize("record_type", [RunSpec, Step])
def test_a_missing_optional_field_has_its_default(
    old_run: Path, record_type: type[RunSpec] | type[Step]
) -> None:
    path = old_run / ("run.json" if record_type is RunSpec else "trace.jsonl")
    recorded = json.loads(path.read_text() if record_type is RunSpec else path.read_text().splitlines()[0])
    optional = {name: field for name, field in record_type.model_fields.items() if not field.is_required()}
    earlier_names = {"ledger"}  # of record_access
    minimal = record_type.model_validate(
        {name: value for name, value in recorded.items() if name not in optional.keys() | earlier_names}
    )
    assert all(
        getattr(minimal, name) == field.get_default(call_default_factory=True)
        for name, field in optional.items()
    )
