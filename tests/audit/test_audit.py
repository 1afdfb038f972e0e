"""The audit: no attack succeeds on the tasks, and a hole in a grader or sandbox is found."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mlagentbench.audit import audit as audit_module
from mlagentbench.audit.attacks.base import Attack, attack_names, load_attack
from mlagentbench.audit.audit import run_audit
from mlagentbench.audit.context import AttackContext
from mlagentbench.cli.audit import format_table
from mlagentbench.environment.context import ActionContext
from mlagentbench.errors import Fault, SandboxFault, UsageError
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.sandbox.programs import submission_runner
from mlagentbench.task import Task

ROOT = Path(__file__).parents[2]
TOY = str(ROOT / "tests" / "toy")
DOCUMENT = ROOT / "docs" / "internals" / "security.md"
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.*?) \|$", re.MULTILINE)


def ignore(line):
    """Discard a progress line or a finding."""


@pytest.fixture
def attack():
    """attack(task, name, quick) runs one attack and returns its finding."""

    def run_one(task, name, quick=True):
        (finding,) = run_audit([str(task)], [name], quick, ignore, ignore)
        return finding

    return run_one


@pytest.mark.xdist_group("audit")
@pytest.mark.parametrize("tasks", [[TOY], pytest.param([TOY, "house-price"], marks=pytest.mark.slow)])
def test_no_attack_succeeds(tasks):
    findings = run_audit(tasks, [], True, ignore, ignore)
    assert not [f"{finding.attack}: {finding.what}" for finding in findings if finding.outcome == "SUCCEEDED"]
    attempted = {finding.attack for finding in findings}
    expected = {
        name
        for name in attack_names()
        if not load_attack(name).slow and load_attack(name).applies_to(Task.load(tasks[-1]))
    }
    assert attempted == expected and len(attempted) >= 20
    assert all(finding.what for finding in findings)


JOINING_GRADER = """
import pandas as pd
def grade(submission, private):
    both = pd.read_csv(submission).merge(pd.read_csv(private / "answers.csv"), on="id")
    return float((both["value_x"] - both["value_y"]).abs().mean())
"""
NAN_SKIPPING_GRADER = """
import pandas as pd
def grade(submission, private):
    wrong = (pd.read_csv(submission)["value"] - pd.read_csv(private / "answers.csv")["value"]).abs()
    return float(wrong.dropna().sum() / len(wrong))
"""
UNPICKLING_GRADER = """
import pickle
def grade(submission, private):
    data = submission.read_bytes()
    return float(pickle.loads(data)) if data.startswith(b"\\x80") else 5.0
"""


@pytest.mark.parametrize(
    ("grader", "name", "what"),
    [
        (JOINING_GRADER, "table_rows", "scored 0"),
        (NAN_SKIPPING_GRADER, "table_cells", "scored 0"),
        (UNPICKLING_GRADER, "table_bytes", "scored 0"),
        (
            "def grade(submission, private): return 1 / int(submission.read_text()[9])",
            "table_cells",
            "the grader fail",
        ),
    ],
    ids=["a join by id", "missing values skipped", "a pickle loaded", "a grader that can be made to fail"],
)
def test_a_grader_with_a_hole_is_found(variant, attack, grader, name, what):
    finding = attack(variant({"grade.py": grader}), name)
    assert finding.outcome == "SUCCEEDED" and what in finding.what


@pytest.mark.parametrize("name", ["paths", "network"])
def test_attacks_that_the_sandbox_prevents_succeed_without_a_sandbox(toy, name, monkeypatch):
    monkeypatch.setattr(
        "mlagentbench.audit.audit.prepare_setup",
        lambda task, edition, sandbox, progress: prepare_setup(task, edition, "none", progress),
    )
    (finding,) = run_audit([str(toy)], [name], True, ignore, ignore)
    assert finding.outcome == "SUCCEEDED", finding.what


def test_a_secret_in_the_output_is_noticed(toy, attack, monkeypatch):
    def show(self, env):
        self.run_script(env, f"print({self.context.secrets[0].token!r})")
        self.finish_without_submission(env)

    monkeypatch.setattr(load_attack("flood"), "run", show)
    monkeypatch.setattr(load_attack("flood"), "describe_gain", lambda self, outcome: "")
    assert attack(toy, "flood").what == "it read the secret in the user's home"


def test_a_broken_attack_is_a_fault_and_not_a_refusal(toy, attack, monkeypatch):
    monkeypatch.setattr(load_attack("flood"), "run", lambda self, env: 1 / 0)
    with pytest.raises(Fault, match="The attack flood itself is broken: its run ended as 'crashed'"):
        attack(toy, "flood")


def test_an_attack_that_makes_the_harness_fail_has_succeeded(toy, attack, monkeypatch):
    def fail(self, env):
        raise SandboxFault("the machine failed")

    monkeypatch.setattr(load_attack("flood"), "run", fail)
    monkeypatch.setattr(load_attack("flood"), "describe_gain", lambda self, outcome: "")
    finding = attack(toy, "flood")
    assert (
        finding.outcome == "SUCCEEDED" and "voids the run: SandboxFault: the machine failed" in finding.what
    )


def test_the_access_log_shows_the_files_an_attack_tried_to_open(toy, attack, setup):
    finding = attack(toy, "paths", quick=False)
    answers = setup.data.private / "answers.csv"
    # Inside the sandbox, /tmp belongs to the script.
    hidden = "/root" if answers.is_relative_to("/tmp") else answers
    assert finding.outcome == "refused" and f"read {hidden}" in finding.foreign_accesses


def test_an_attack_that_opened_a_protected_file_has_succeeded_even_if_it_printed_nothing(
    toy, attack, monkeypatch
):
    def open_files(self, env):
        self.run_script(env, "open('mine', 'w'); open('/usr/bin/env'); open('/etc/passwd')")
        self.finish_without_submission(env)

    monkeypatch.setattr(load_attack("links"), "run", open_files)
    monkeypatch.setattr(load_attack("links"), "describe_gain", lambda self, outcome: "")
    assert attack(toy, "links", quick=False).outcome == "gained nothing"
    monkeypatch.setattr(AttackContext, "protected_paths", ("/usr/bin", "/workspace"))
    finding = attack(toy, "links", quick=False)
    assert finding.outcome == "SUCCEEDED" and "it opened /usr/bin/env" in finding.what
    assert "/workspace" not in finding.what


def test_a_file_of_the_harness_is_detected_under_any_name(toy, attack, monkeypatch):
    ours = Path(audit_module.__file__)
    monkeypatch.setattr(
        ActionContext,
        "sandbox_spec",
        lambda self, original=ActionContext.sandbox_spec: replace(
            original(self), mounts=((ours, "/opt/elsewhere.bin"),)
        ),
    )
    assert attack(toy, "harness_files").what == "/opt/elsewhere.bin is a file of the harness"


def test_findings_are_printed_as_a_table_or_json_and_decide_the_exit_code(cli, toy, variant):
    done = cli("audit", toy, "--attack", "after_the_end", "--attack", "paths", "--quick")
    assert done.returncode == 0 and done.stdout.splitlines()[0].split() == ["attack", "toy"]
    assert (
        done.stdout.splitlines()[1].split() == ["after_the_end", "refused"] and "0 succeeded" in done.stdout
    )
    assert "after_the_end on toy: refused: The run is over: submitted" in done.stderr
    hole = variant({"grade.py": JOINING_GRADER})
    done = cli("audit", hole, "--attack", "table_rows", "--quick", "--json")
    (finding,) = json.loads(done.stdout)
    assert (done.returncode, finding["outcome"], finding["threats"]) == (1, "SUCCEEDED", [12, 13, 14])


def test_an_unknown_attack_is_a_usage_error_in_one_line(cli, toy):
    done = cli("audit", toy, "--attack", "magic")
    assert done.returncode == 2 and "No such attack: 'magic'. Available: action_paths" in done.stderr


def test_an_audit_without_tasks_still_checks_its_attacks_and_prints_an_empty_table():
    with pytest.raises(UsageError, match="No such attack: 'nothing'"):
        run_audit([], ["nothing"], True, ignore, ignore)
    assert format_table([]) == ["attack"]


@pytest.mark.parametrize("name", attack_names())
def test_an_attack_has_a_docstring_and_is_listed_under_its_threats(name):
    attack_class = load_attack(name)
    assert attack_class.__doc__ and attack_class.__doc__ != Attack.__doc__ and attack_class.threats
    rows = {int(number): row for number, *row in ROW.findall(DOCUMENT.read_text())}
    assert all(f"`{name}`" in rows[number][1] for number in attack_class.threats), (
        "docs/internals/security.md must name it"
    )


def test_the_patched_clock_replaces_names_that_the_driver_has():
    names = re.findall(r"\bdriver\.(\w+)", load_attack("patched_clock").code)
    assert "READY" in names and all(hasattr(submission_runner, name) for name in names)


def test_every_threat_is_covered_by_an_attack_or_another_check():
    rows = {int(number): row for number, *row in ROW.findall(DOCUMENT.read_text())}
    assert sorted(rows) == list(range(1, 29))
    for number, (_, attacks, other_checks) in rows.items():
        named = re.findall(r"`(\w+)`", attacks)
        assert named or len(other_checks.split()) > 3, f"nothing covers threat {number}"
        assert set(named) <= set(attack_names()), number
        assert all(number in load_attack(name).threats for name in named)


def test_an_audit_without_enough_disk_space_is_one_line(toy, tmp_path):
    small_disk = ["bwrap", "--dev-bind", "/", "/", "--size", str(50 << 20), "--tmpfs", str(tmp_path)]
    command = [sys.executable, "-m", "mlagentbench", "audit", str(toy), "--attack", "flood"]
    environment = {**os.environ, "MLAGENTBENCH_HOME": str(tmp_path)}
    done = subprocess.run(
        [*small_disk, *command], capture_output=True, text=True, check=False, timeout=60, env=environment
    )
    message = f"mlagentbench: The audit needs 2 GB of free disk space in {tmp_path}; 0.1 GB are free.\n"
    assert (done.returncode, done.stderr) == (2, message)


def test_an_attack_that_causes_a_fault_before_its_first_step_is_reported(toy, attack, monkeypatch):
    def fail(*_):
        raise Fault("no space left on device")

    monkeypatch.setattr(ActionContext, "sandbox_spec", fail)
    finding = attack(toy, "flood")
    assert finding.outcome == "SUCCEEDED"
    assert finding.what == "it made the harness fail, which voids the run: Fault: no space left on device"
