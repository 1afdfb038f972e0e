"""Rule violations by scripts that are gone, or were corrected, when the run ends."""

from itertools import count
from pathlib import Path

import pytest
from fake_model import FakeModel

from mlagentbench.agents.command import Command
from mlagentbench.grading import executed_scripts
from mlagentbench.records import AgentSpec, Call, Limits, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import execute_run
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.runner.verify import verify_run
from mlagentbench.workspace.manifest import Entry
from mlagentbench.workspace.store import Store

RULES = """

def violations(sources):
    # A task imports it from `checks`, which also imports pandas and would double the time of these tests.
    from mlagentbench.grading.script_rules import numbers_above

    return numbers_above(sources, "train.py", "epoch", 10)
"""
OVER, WITHIN = "EPOCHS = 50\n", "EPOCHS = 10\n"
SUBMIT = 'open("submission.csv", "w").write("id,value\\n" + "".join(f"{i},5\\n" for i in range(10)))\n'


@pytest.fixture
def setup_with_rule(variant, toy):
    """The toy task with a rule: at most ten epochs."""
    folder = variant({"grade.py": (toy / "grade.py").read_text() + RULES})
    return prepare_setup(str(folder), "open", "bwrap", lambda line: None)


@pytest.fixture
def violations(play, do, setup_with_rule):
    """Violations of a run that writes files (name, content), executes scripts (name) or REPL code (>code)."""

    run_numbers = count()

    def run_actions(*actions):
        def behave(env):
            for action in actions:
                if isinstance(action, tuple):
                    do(env, "Write File", file_name=action[0], content=action[1])
                elif action.startswith(">"):
                    do(env, "Python REPL", command=action[1:])
                else:
                    do(env, "Execute Script", script_name=action)
            do(env, "Final Answer", final_answer="")

        result = play(behave, f"run-{next(run_numbers)}", setup=setup_with_rule)
        assert result.valid, result.note
        return result.violations

    return run_actions


def test_a_script_that_broke_a_rule_is_found_after_it_was_corrected(violations):
    found = violations(("train.py", OVER + SUBMIT), "train.py", ("train.py", WITHIN + SUBMIT))
    assert found == ("step 2: train.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_a_violation_that_the_submission_still_shows_is_reported_once_without_a_step(violations):
    found = violations(("train.py", OVER + SUBMIT), "train.py", "train.py")
    assert found == ("train.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_a_script_with_another_name_in_a_subfolder_is_checked_with_its_imports(violations):
    found = violations(
        ("sub/other.py", "import settings\n" + SUBMIT),
        ("sub/settings.py", OVER),
        "sub/other.py",
        ("sub/settings.py", ""),
    )
    assert found == ("step 3: settings.py line 1 sets EPOCHS to 50; at most 10 is allowed",)
    found = violations(("quick.py", OVER + SUBMIT), "quick.py")
    assert found == ("step 2: quick.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_commands_in_the_repl_are_checked_too(violations):
    found = violations(">epochs = 20\n", f">{SUBMIT}")
    assert found == ("step 2: Python REPL line 1 sets epochs to 20; at most 10 is allowed",)


def test_what_ran_after_the_submission_or_changed_nothing_is_not_checked(violations):
    assert violations(("train.py", OVER), "train.py", ("train.py", SUBMIT), "train.py") == ()
    assert violations("train.py", ("later.py", OVER + "open('x', 'w')\n"), "later.py") == ()


def test_a_script_that_never_ran_broke_no_rule(violations):
    assert violations(("train.py", OVER), ("train.py", SUBMIT), "train.py") == ()


def test_a_folder_with_the_name_of_the_entry_script_does_not_break_the_check(violations):
    swap = "import os\nos.remove('train.py')\nos.makedirs('train.py')\nopen('train.py/x.py', 'w').close()\n"
    found = violations(
        ("a.py", swap), "a.py", ("b.py", OVER + SUBMIT), "b.py", ">open('x', 'w').close()", f">{SUBMIT}"
    )
    assert found == ("step 4: b.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_each_distinct_script_is_reported_at_its_first_step_only(violations):
    found = violations(("a.py", OVER + SUBMIT), "a.py", "a.py", "a.py")
    assert found == ("step 2: a.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_verify_finds_the_same_violations_and_notices_when_they_are_removed(play, do, setup_with_rule):
    def behave(env):
        do(env, "Write File", file_name="a.py", content=OVER + SUBMIT)
        do(env, "Execute Script", script_name="a.py")
        do(env, "Final Answer", final_answer="")

    result = play(behave, setup=setup_with_rule)
    folder = RunFolder(Path(result.folder))
    assert result.violations and all(check.holds for check in verify_run(folder, setup_with_rule))
    folder.write_result(result.replace(violations=()))
    failed = [check.what for check in verify_run(folder, setup_with_rule) if not check.holds]
    assert failed == ["result.json: violations"]


def test_a_command_that_is_not_valid_python_does_not_hide_the_others(violations):
    found = violations(">EPOCHS = (", f">{OVER}", f">{SUBMIT}")
    assert found == ("step 3: Python REPL line 1 sets EPOCHS to 50; at most 10 is allowed",)


@pytest.mark.parametrize(
    ("hide", "reason"),
    [
        ("open('helper.py', 'w').write('EPOCHS = 50\\n' + '#' * 2**20)", "it is longer than 1,048,576 bytes"),
        ("open('x', 'w').write('EPOCHS = 50'); os.symlink('x', 'helper.py')", "it is reached through a link"),
        (
            "open('helper.py', 'w').write('EPOCHS = 50\\nx = ' + '+'.join('1' * 9000))",
            "it is nested too deeply",
        ),
    ],
    ids=["padded", "linked", "deeply nested"],
)
def test_a_module_that_cannot_be_checked_is_reported(violations, hide, reason):
    runs = f"import sys\nsys.setrecursionlimit(10**6)\nimport helper\nassert helper.EPOCHS == 50\n{SUBMIT}"
    found = violations(("hide.py", f"import os\n{hide}"), "hide.py", ("train.py", runs), "train.py")
    assert found == (f"helper.py cannot be checked: {reason}",)


def test_too_many_scripts_are_reported(violations):
    create = (
        "for number in range(1001): open(f'a{number}.py', 'w')\nopen('helper.py', 'w').write('EPOCHS = 50')\n"
    )
    found = violations(
        ("create.py", create), "create.py", ("train.py", f"import helper\n{SUBMIT}"), "train.py"
    )
    assert "there are more than 1,000 scripts, and not all were checked" in found


def test_a_link_in_place_of_the_entry_script_hides_nothing(violations):
    hide = "import os; os.remove('train.py'); os.symlink('x', 'train.py')"
    found = violations(("hide.py", hide), "hide.py", f">{OVER}", f">{SUBMIT}")
    assert found == (
        "train.py cannot be checked: it is reached through a link",
        "step 4: Python REPL line 1 sets EPOCHS to 50; at most 10 is allowed",
    )


ASK = """
import json, os, urllib.request
def ask():
    body = {"model": "any", "max_tokens": 9, "messages": [{"role": "user", "content": "what next?"}]}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/chat/completions"
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers))
def write(name, text):
    with open(name, "w") as file:
        file.write(text)
"""


@pytest.fixture
def run_external(setup_with_rule, tmp_path):
    """Runs an external program, whose model always replies "continue", and returns the result."""

    def run_program(source):
        program = tmp_path / "program"
        program.mkdir()
        (program / "main.py").write_text(ASK + source)
        agent = Command(command="python /opt/program/main.py", program=str(program))
        agent.models = {"main": FakeModel(["continue"] * 9)}
        folder = RunFolder.create(
            tmp_path / "run", setup_with_rule.create_run_spec(AgentSpec(agent="command"), 0, Limits())
        )
        with folder.lock():
            return execute_run(setup_with_rule, agent, folder)

    return run_program


def test_an_external_program_that_changes_files_in_its_last_turn_is_graded(run_external):
    result = run_external(SUBMIT)
    assert (result.ending, result.valid, result.violations) == ("submitted", True, ()), result.note


def test_what_an_external_program_wrote_and_ran_in_one_turn_is_found_after_it_was_corrected(run_external):
    result = run_external(f"write('train.py', {OVER!r})\n{SUBMIT}ask()\nwrite('train.py', {WITHIN!r})\n")
    assert result.valid, result.note
    assert result.violations == ("step 1: train.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_an_external_program_may_turn_a_folder_into_a_script(run_external):
    source = "os.makedirs('a.py')\nwrite('a.py/x.py', '')\nask()\n"
    source += f"os.remove('a.py/x.py')\nos.rmdir('a.py')\nwrite('a.py', '')\n{SUBMIT}"
    result = run_external(source)
    assert (result.ending, result.valid) == ("submitted", True), result.note


def test_a_folder_cannot_take_the_name_of_a_repl_command_module(violations):
    found = violations(("command_0.py/x.py", ""), f">{OVER}", f">{SUBMIT}")
    assert found == ("step 3: Python REPL line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_the_length_of_a_path_is_measured_in_bytes(violations):
    name = "/".join(["\U0001f600" * 63] * 15) + "/" + "\U0001f600" * 20 + ".py"
    assert len(name) < 1000
    (shortened,) = executed_scripts.find_scripts({name: Entry("file")})
    assert len(shortened.encode()) < 1300  # or it would not fit on a host with a long temporary folder
    assert violations((name, OVER), ("train.py", SUBMIT), "train.py") == ()


def test_a_script_with_a_long_path_is_checked_and_a_module_with_one_is_reported(violations):
    name = "/".join(["d" * 200] * 6)
    found = violations((f"{name}/run.py", OVER + SUBMIT), f"{name}/run.py")
    assert found == ("step 2: run.py line 1 sets EPOCHS to 50; at most 10 is allowed",)
    found = violations(
        (f"{name}/run.py", OVER), ("quick.py", f"import {name.replace('/', '.')}.run\n{SUBMIT}"), "quick.py"
    )
    assert found == (f"step 3: {'d' * 200} cannot be checked: it is reached through a link",)


COMPILE = (
    "import importlib.util, marshal\nopen('NAME', 'wb').write(importlib.util.MAGIC_NUMBER + bytes(12) + "
)
COMPILE += f"marshal.dumps(compile({OVER + SUBMIT!r}, 'x', 'exec')))\n"
ZIP = "import zipfile\nwith zipfile.ZipFile('quick.py', 'w') as file: "
ZIP += f"file.writestr('__main__.py', {OVER + SUBMIT!r})\n"
LINK = f"import os\nos.mkdir('real')\nopen('real/run.py', 'w').write({OVER + SUBMIT!r})\n"
LINK += "os.symlink('real', 'helper')\n"


@pytest.mark.parametrize(
    ("create", "importer", "message"),
    [
        (ZIP, None, "quick.py cannot be checked: it is compiled"),
        (COMPILE.replace("NAME", "quick.py"), None, "quick.py cannot be checked: it is compiled"),
        (
            COMPILE.replace("NAME", "helper.pyc"),
            "import helper\n",
            "helper.pyc cannot be checked: it is compiled",
        ),
        (LINK, "import helper.run\n", "helper cannot be checked: it is reached through a link"),
    ],
    ids=["archive", "compiled script", "compiled module", "linked folder"],
)
def test_what_python_runs_although_it_is_not_a_script_is_reported(violations, create, importer, message):
    actions = (
        [("create.py", create), "create.py"] + ([("quick.py", importer)] if importer else []) + ["quick.py"]
    )
    found = [text.partition(": ")[2] for text in violations(*actions) if not text.endswith("allowed")]
    assert found == [message]


def test_weights_in_a_pycache_folder_are_a_change_too(violations):
    train = OVER + "import os\nos.mkdir('__pycache__')\nopen('__pycache__/weights', 'w').write('1')\n"
    found = violations(("train.py", train), "train.py", ("train.py", SUBMIT), "train.py")
    assert found == ("step 2: train.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_more_than_a_thousand_repl_commands_are_reported(tmp_path):
    calls = [Call(action="Python REPL", args={"command": "epochs = 20"})] * 1001
    steps = [
        Step(number=number, call=call, observation="", seconds=0, clock=0)
        for number, call in enumerate(calls, 1)
    ]
    (tmp_path / "workspace").mkdir()
    store = Store(tmp_path / "store", tmp_path / "workspace")
    store.snapshot(0)
    (tmp_path / "workspace" / "submission.csv").touch()
    store.snapshot(1001)
    (script,) = executed_scripts.find_executed_scripts(store, steps, "submission.csv")
    assert list(executed_scripts.format_violations([script], [()], ())) == [
        f"step 1001: {executed_scripts.TOO_MANY_SCRIPTS}"
    ]


@pytest.fixture
def export_run(play, do, setup_with_rule, tmp_path):
    """Exports the states of a run with many scripts; why each is incomplete, and the disk space of all."""
    create = "for n in range(50): open(f'm{n}.py', 'w').write(f'# {n}'.ljust(1_000_000))"

    def export(max_bytes):
        def behave(env):
            do(env, "Write File", file_name="create.py", content=create)
            do(env, "Execute Script", script_name="create.py")
            for number in range(5):
                do(env, "Python REPL", command=f"open('m0.py', 'w').write('# {number}')\n{SUBMIT}# {number}")
            do(env, "Write File", file_name="submission.csv", content="")

        folder = RunFolder(Path(play(behave, setup=setup_with_rule).folder))
        store = folder.open_store(setup_with_rule.data, writable=False)
        (tmp_path / "exported").mkdir()
        exporter = executed_scripts.ScriptExporter(store, tmp_path / "exported" / "contents", max_bytes)
        scripts = [
            exporter.export(script, tmp_path / "exported" / str(number))
            for number, script in enumerate(
                executed_scripts.find_executed_scripts(store, folder.steps(), ".")
            )
        ]
        sizes = {path.stat().st_ino: path.stat().st_blocks for path in (tmp_path / "exported").rglob("*")}
        return [script.incomplete_reason for script in scripts], sum(sizes.values()) * 512

    return export


def test_content_that_many_states_share_is_exported_once(export_run):
    reasons, size = export_run(executed_scripts.MAX_EXPORT_BYTES)
    assert reasons == [""] * 6 and size < 60_000_000


def test_states_that_exceed_the_disk_budget_are_reported(export_run):
    reasons, size = export_run(20_000_000)
    assert reasons == ["", *["not all scripts could be checked"] * 5] and size < 20_000_000
