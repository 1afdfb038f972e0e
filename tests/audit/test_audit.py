"""The audit itself: on our tasks no attack gets anywhere, and on a harness with a hole it says so."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mlagentbench.actions.base import ActionContext
from mlagentbench.audit import audit as audit_module
from mlagentbench.audit.attacks.base import Attack, attack_names, load_attack
from mlagentbench.audit.audit import run_audit
from mlagentbench.audit.context import AttackContext
from mlagentbench.cli.audit import format_table
from mlagentbench.errors import Fault, SandboxFault, UsageError
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.task import Task

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "security.md"
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.*?) \|$", re.MULTILINE)
TESTS = {
    name
    for path in ROOT.glob("tests/**/test_*.py")
    for name in re.findall(r"def (test_\w+)", path.read_text())
}


def quiet(line):
    """Nobody listens."""


@pytest.fixture
def attack():
    """attack(task, name, quick): what became of it."""

    def one(task, name, quick=True):
        (finding,) = run_audit([str(task)], [name], quick, quiet, quiet)
        return finding

    return one


@pytest.mark.xdist_group("audit")
def test_no_attack_gets_anywhere(toy):
    findings = run_audit([str(toy), "house-price"], [], True, quiet, quiet)
    assert not [f"{each.attack}: {each.what}" for each in findings if each.outcome == "SUCCEEDED"]
    tried = {each.attack for each in findings}
    wanted = {
        name
        for name in attack_names()
        if not load_attack(name).slow and load_attack(name).applies_to(Task.load("house-price"))
    }
    assert tried == wanted and len(tried) >= 20
    assert all(each.what for each in findings)


JOINED = """
import pandas as pd
def grade(submission, private):
    both = pd.read_csv(submission).merge(pd.read_csv(private / "answers.csv"), on="id")
    return float((both["value_x"] - both["value_y"]).abs().mean())
"""
SKIPPING = """
import pandas as pd
def grade(submission, private):
    wrong = (pd.read_csv(submission)["value"] - pd.read_csv(private / "answers.csv")["value"]).abs()
    return float(wrong.dropna().sum() / len(wrong))
"""
TRUSTING = """
import pickle
def grade(submission, private):
    data = submission.read_bytes()
    return float(pickle.loads(data)) if data.startswith(b"\\x80") else 5.0
"""


@pytest.mark.parametrize(
    ("grader", "name", "what"),
    [
        (JOINED, "table_rows", "scored 0"),
        (SKIPPING, "table_cells", "scored 0"),
        (TRUSTING, "table_bytes", "scored 0"),
        (
            "def grade(submission, private): return 1 / int(submission.read_text()[9])",
            "table_cells",
            "the grader fail",
        ),
    ],
    ids=["a join by id", "missing values skipped", "a pickle opened", "a grader that can be made to fail"],
)
def test_a_grader_with_a_hole_is_found(variant, attack, grader, name, what):
    finding = attack(variant({"grade.py": grader}), name)
    assert finding.outcome == "SUCCEEDED" and what in finding.what


@pytest.mark.parametrize("name", ["paths", "network"])
def test_what_the_sandbox_prevents_works_without_one(toy, name, monkeypatch):
    monkeypatch.setattr(
        "mlagentbench.audit.audit.set_up",
        lambda task, edition, isolation, say: prepare_setup(task, edition, "none", say),
    )
    (finding,) = run_audit([str(toy)], [name], True, quiet, quiet)
    assert finding.outcome == "SUCCEEDED", finding.what


def test_a_secret_that_turns_up_is_noticed(toy, attack, monkeypatch):
    def show(self, env):
        self.execute(env, f"print({self.scene.secrets[0].token!r})")
        self.leave(env)

    monkeypatch.setattr(load_attack("flood"), "run", show)
    monkeypatch.setattr(load_attack("flood"), "gained", lambda self, end: "")
    assert attack(toy, "flood").what == "it came to know the secret in the user's home"


def test_an_attack_that_is_itself_broken_is_a_fault_and_no_refusal(toy, attack, monkeypatch):
    monkeypatch.setattr(load_attack("flood"), "run", lambda self, env: 1 / 0)
    with pytest.raises(Fault, match="the attack flood is itself broken: it ended as crashed"):
        attack(toy, "flood")


def test_an_attack_that_makes_the_harness_fail_has_succeeded(toy, attack, monkeypatch):
    def fail(self, env):
        raise SandboxFault("the machine gave in")

    monkeypatch.setattr(load_attack("flood"), "run", fail)
    monkeypatch.setattr(load_attack("flood"), "gained", lambda self, end: "")
    finding = attack(toy, "flood")
    assert (
        finding.outcome == "SUCCEEDED" and "voids the run: SandboxFault: the machine gave in" in finding.what
    )


def test_the_access_ledger_tells_where_an_attack_tried_to_look(toy, attack, setup):
    finding = attack(toy, "paths", quick=False)
    answers = setup.data.private / "answers.csv"
    hidden = "/root" if answers.is_relative_to("/tmp") else answers  # inside, /tmp is the script's own
    assert finding.outcome == "refused" and f"read {hidden}" in finding.strayed


def test_an_attack_that_opened_what_is_hidden_has_succeeded_though_it_showed_nothing(
    toy, attack, monkeypatch
):
    def look(self, env):
        self.execute(env, "open('mine', 'w'); open('/usr/bin/env'); open('/etc/passwd')")
        self.leave(env)

    monkeypatch.setattr(load_attack("links"), "run", look)
    monkeypatch.setattr(load_attack("links"), "gained", lambda self, end: "")
    assert attack(toy, "links", quick=False).outcome == "gained nothing"
    monkeypatch.setattr(AttackContext, "hidden", ("/usr/bin", "/workspace"))
    finding = attack(toy, "links", quick=False)
    assert finding.outcome == "SUCCEEDED" and "it opened /usr/bin/env" in finding.what
    assert "/workspace" not in finding.what


def test_a_file_of_the_harness_is_found_under_any_name(toy, attack, monkeypatch):
    ours = Path(audit_module.__file__)
    monkeypatch.setattr(
        ActionContext,
        "box",
        lambda self, plain=ActionContext.sandbox_spec: replace(
            plain(self), mounts=((ours, "/opt/elsewhere.bin"),)
        ),
    )
    assert attack(toy, "harness_files").what == "/opt/elsewhere.bin is one of the harness's own files"


def test_findings_are_a_table_json_and_an_exit_code(cli, toy, variant):
    done = cli("audit", toy, "--attack", "after_the_end", "--attack", "paths", "--quick")
    assert done.returncode == 0 and done.stdout.splitlines()[0].split() == ["attack", "toy"]
    assert (
        done.stdout.splitlines()[1].split() == ["after_the_end", "refused"] and "0 succeeded" in done.stdout
    )
    assert "after_the_end on toy: refused: the run is over: submitted" in done.stderr
    hole = variant({"grade.py": JOINED})
    done = cli("audit", hole, "--attack", "table_rows", "--quick", "--json")
    (finding,) = json.loads(done.stdout)
    assert (done.returncode, finding["outcome"], finding["lines"]) == (1, "SUCCEEDED", [12, 13, 14])


def test_an_unknown_attack_is_one_line(cli, toy):
    done = cli("audit", toy, "--attack", "magic")
    assert done.returncode == 2 and "no attack 'magic'; there are: action_paths" in done.stderr


def test_a_task_that_an_attack_does_not_fit_is_a_dash_and_nothing_is_lost():
    with pytest.raises(UsageError, match="no attack"):
        run_audit([], ["nothing"], True, quiet, quiet)
    assert format_table([]) == ["attack"]


@pytest.mark.parametrize("name", attack_names())
def test_an_attack_says_what_it_is_and_for_which_lines_it_stands(name):
    kind = load_attack(name)
    assert kind.__doc__ and kind.__doc__ != Attack.__doc__ and kind.threats
    rows = {int(number): row for number, *row in ROW.findall(DOCUMENT.read_text())}
    assert all(f"`{name}`" in rows[line][1] for line in kind.threats), "docs/security.md must name it"


def test_every_way_of_being_fooled_has_an_attack_or_a_test_that_exists():
    rows = {int(number): row for number, *row in ROW.findall(DOCUMENT.read_text())}
    assert sorted(rows) == list(range(1, 29))
    for number, (_, attacks, tests) in rows.items():
        named = re.findall(r"`(\w+)`", attacks), re.findall(r"`(\w+)`", tests)
        assert named[0] or named[1], f"nothing keeps line {number} closed"
        assert set(named[0]) <= set(attack_names()) and set(named[1]) <= TESTS, number
        assert all(number in load_attack(name).threats for name in named[0])
