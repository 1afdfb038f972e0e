"""Rules that were broken on the way, by a script that is gone or mended when the run ends."""

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
    from mlagentbench.grading.checks import numbers_above

    return numbers_above(sources, "train.py", "epoch", 10)
"""
OVER, WITHIN = "EPOCHS = 50\n", "EPOCHS = 10\n"
SUBMIT = 'open("submission.csv", "w").write("id,value\\n" + "".join(f"{i},5\\n" for i in range(10)))\n'


@pytest.fixture
def ruled(variant, toy):
    """The toy with a rule: at most ten epochs."""
    folder = variant({"grade.py": (toy / "grade.py").read_text() + RULES})
    return prepare_setup(str(folder), "open", "bwrap", lambda line: None)


@pytest.fixture
def violations(play, do, ruled):
    """What is found when files are written (name, content), scripts executed (a name) and code told (>code)."""

    runs = count()

    def found(*deeds):
        def behave(env):
            for deed in deeds:
                if isinstance(deed, tuple):
                    do(env, "Write File", file_name=deed[0], content=deed[1])
                elif deed.startswith(">"):
                    do(env, "Python REPL", command=deed[1:])
                else:
                    do(env, "Execute Script", script_name=deed)
            do(env, "Final Answer", final_answer="")

        result = play(behave, f"run-{next(runs)}", setup=ruled)
        assert result.valid, result.note
        return result.violations

    return found


def test_a_script_that_broke_a_rule_is_found_though_it_was_put_back(violations):
    said = violations(("train.py", OVER + SUBMIT), "train.py", ("train.py", WITHIN + SUBMIT))
    assert said == ("step 2: train.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_what_the_submission_still_shows_is_said_once_and_without_a_step(violations):
    said = violations(("train.py", OVER + SUBMIT), "train.py", "train.py")
    assert said == ("train.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_a_script_of_another_name_in_a_folder_of_its_own_is_looked_at_with_what_it_imports(violations):
    said = violations(
        ("sub/other.py", "import settings\n" + SUBMIT),
        ("sub/settings.py", OVER),
        "sub/other.py",
        ("sub/settings.py", ""),
    )
    assert said == ("step 3: settings.py line 1 sets EPOCHS to 50; at most 10 is allowed",)
    said = violations(("quick.py", OVER + SUBMIT), "quick.py")
    assert said == ("step 2: quick.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_what_an_interpreter_was_told_counts_too(violations):
    said = violations(">epochs = 20\n", f">{SUBMIT}")
    assert said == ("step 2: Python REPL line 1 sets epochs to 20; at most 10 is allowed",)


def test_what_ran_after_the_submission_was_made_or_changed_nothing_is_left_alone(violations):
    assert violations(("train.py", OVER), "train.py", ("train.py", SUBMIT), "train.py") == ()
    assert violations("train.py", ("later.py", OVER + "open('x', 'w')\n"), "later.py") == ()


def test_a_script_that_never_ran_broke_no_rule(violations):
    assert violations(("train.py", OVER), ("train.py", SUBMIT), "train.py") == ()


def test_a_folder_with_the_name_of_the_first_script_is_no_trouble(violations):
    swap = "import os\nos.remove('train.py')\nos.makedirs('train.py')\nopen('train.py/x.py', 'w').close()\n"
    said = violations(
        ("a.py", swap), "a.py", ("b.py", OVER + SUBMIT), "b.py", ">open('x', 'w').close()", f">{SUBMIT}"
    )
    assert said == ("step 4: b.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_each_distinct_script_is_named_at_its_first_step_only(violations):
    said = violations(("a.py", OVER + SUBMIT), "a.py", "a.py", "a.py")
    assert said == ("step 2: a.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_verify_finds_the_same_and_notices_when_they_are_taken_out(play, do, ruled):
    def behave(env):
        do(env, "Write File", file_name="a.py", content=OVER + SUBMIT)
        do(env, "Execute Script", script_name="a.py")
        do(env, "Final Answer", final_answer="")

    result = play(behave, setup=ruled)
    folder = RunFolder(Path(result.folder))
    assert result.violations and all(check.holds for check in verify_run(folder, ruled))
    folder.write_result(result.replace(violations=()))
    failed = [check.what for check in verify_run(folder, ruled) if not check.holds]
    assert failed == ["result.json: violations"]


def test_a_command_that_is_no_python_does_not_hide_the_others(violations):
    said = violations(">EPOCHS = (", f">{OVER}", f">{SUBMIT}")
    assert said == ("step 3: Python REPL line 1 sets EPOCHS to 50; at most 10 is allowed",)


@pytest.mark.parametrize(
    ("hide", "why"),
    [
        ("open('helper.py', 'w').write('EPOCHS = 50\\n' + '#' * 2**20)", "it is longer than 1,048,576 bytes"),
        ("open('x', 'w').write('EPOCHS = 50'); os.symlink('x', 'helper.py')", "it is reached through a link"),
        (
            "open('helper.py', 'w').write('EPOCHS = 50\\nx = ' + '+'.join('1' * 9000))",
            "it is nested too deep",
        ),
    ],
    ids=["padded", "linked", "deep"],
)
def test_a_module_that_cannot_be_looked_at_is_told_of(violations, hide, why):
    runs = f"import sys\nsys.setrecursionlimit(10**6)\nimport helper\nassert helper.EPOCHS == 50\n{SUBMIT}"
    said = violations(("hide.py", f"import os\n{hide}"), "hide.py", ("train.py", runs), "train.py")
    assert said == (f"helper.py cannot be looked at: {why}",)


def test_a_crowd_of_scripts_is_told_of(violations):
    crowd = (
        "for number in range(1001): open(f'a{number}.py', 'w')\nopen('helper.py', 'w').write('EPOCHS = 50')\n"
    )
    said = violations(("crowd.py", crowd), "crowd.py", ("train.py", f"import helper\n{SUBMIT}"), "train.py")
    assert "there are over 1,000 scripts, and not all were looked at" in said


def test_a_link_in_the_place_of_the_first_script_hides_nothing(violations):
    hide = "import os; os.remove('train.py'); os.symlink('x', 'train.py')"
    said = violations(("hide.py", hide), "hide.py", f">{OVER}", f">{SUBMIT}")
    assert said == (
        "train.py cannot be looked at: it is reached through a link",
        "step 4: Python REPL line 1 sets EPOCHS to 50; at most 10 is allowed",
    )


ASK = """
import json, os, urllib.request
def ask():
    body = {"model": "any", "max_tokens": 9, "messages": [{"role": "user", "content": "and now?"}]}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/chat/completions"
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"}))
def write(name, text):
    with open(name, "w") as file:
        file.write(text)
"""


@pytest.fixture
def outside(ruled, tmp_path):
    """The result of an outside program, which hears "go on" whenever it asks."""

    def go(source):
        program = tmp_path / "program"
        program.mkdir()
        (program / "main.py").write_text(ASK + source)
        agent = Command(command="python /opt/program/main.py", program=str(program))
        agent.models = {"main": FakeModel(["go on"] * 9)}
        folder = RunFolder.create(
            tmp_path / "run", ruled.create_run_spec(AgentSpec(agent="command"), 0, Limits())
        )
        with folder.lock():
            return execute_run(ruled, agent, folder)

    return go


def test_an_outside_program_that_changes_files_in_its_last_turn_is_graded(outside):
    result = outside(SUBMIT)
    assert (result.ending, result.valid, result.violations) == ("submitted", True, ()), result.note


def test_what_an_outside_program_wrote_and_ran_in_one_turn_is_found_though_it_was_put_back(outside):
    result = outside(f"write('train.py', {OVER!r})\n{SUBMIT}ask()\nwrite('train.py', {WITHIN!r})\n")
    assert result.valid, result.note
    assert result.violations == ("step 1: train.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_an_outside_program_may_turn_a_folder_into_a_script(outside):
    source = "os.makedirs('a.py')\nwrite('a.py/x.py', '')\nask()\n"
    source += f"os.remove('a.py/x.py')\nos.rmdir('a.py')\nwrite('a.py', '')\n{SUBMIT}"
    result = outside(source)
    assert (result.ending, result.valid) == ("submitted", True), result.note


def test_no_folder_has_the_name_of_what_an_interpreter_was_told(violations):
    said = violations(("told_to_the_interpreter_0.py/x.py", ""), f">{OVER}", f">{SUBMIT}")
    assert said == ("step 3: Python REPL line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_a_path_is_measured_in_bytes(violations):
    name = "/".join(["\U0001f600" * 63] * 15) + "/" + "\U0001f600" * 20 + ".py"
    assert len(name) < 1000
    (laid,) = executed_scripts.find_scripts({name: Entry("file")})
    assert len(laid.encode()) < 1300  # or a host with a long home could not lay it out
    assert violations((name, OVER), ("train.py", SUBMIT), "train.py") == ()


def test_a_script_with_a_long_path_is_looked_at_and_a_module_of_it_told_of(violations):
    name = "/".join(["d" * 200] * 6)
    said = violations((f"{name}/run.py", OVER + SUBMIT), f"{name}/run.py")
    assert said == ("step 2: run.py line 1 sets EPOCHS to 50; at most 10 is allowed",)
    said = violations(
        (f"{name}/run.py", OVER), ("quick.py", f"import {name.replace('/', '.')}.run\n{SUBMIT}"), "quick.py"
    )
    assert said == (f"step 3: {'d' * 200} cannot be looked at: it is reached through a link",)


COMPILE = (
    "import importlib.util, marshal\nopen('NAME', 'wb').write(importlib.util.MAGIC_NUMBER + bytes(12) + "
)
COMPILE += f"marshal.dumps(compile({OVER + SUBMIT!r}, 'x', 'exec')))\n"
ZIP = f"import zipfile\nwith zipfile.ZipFile('quick.py', 'w') as file: file.writestr('__main__.py', {OVER + SUBMIT!r})\n"
LINK = f"import os\nos.mkdir('real')\nopen('real/run.py', 'w').write({OVER + SUBMIT!r})\nos.symlink('real', 'helper')\n"


@pytest.mark.parametrize(
    ("make", "runs", "unseen"),
    [
        (ZIP, None, "quick.py cannot be looked at: it is compiled"),
        (COMPILE.replace("NAME", "quick.py"), None, "quick.py cannot be looked at: it is compiled"),
        (
            COMPILE.replace("NAME", "helper.pyc"),
            "import helper\n",
            "helper.pyc cannot be looked at: it is compiled",
        ),
        (LINK, "import helper.run\n", "helper cannot be looked at: it is reached through a link"),
    ],
    ids=["an archive", "a compiled script", "a compiled module", "a folder behind a link"],
)
def test_what_runs_but_is_no_script_is_told_of(violations, make, runs, unseen):
    deeds = [("make.py", make), "make.py"] + ([("quick.py", runs)] if runs else []) + ["quick.py"]
    said = [
        sentence.partition(": ")[2] for sentence in violations(*deeds) if not sentence.endswith("allowed")
    ]
    assert said == [unseen]


def test_weights_below_a_folder_for_caches_are_a_change_too(violations):
    learn = OVER + "import os\nos.mkdir('__pycache__')\nopen('__pycache__/weights', 'w').write('1')\n"
    said = violations(("train.py", learn), "train.py", ("train.py", SUBMIT), "train.py")
    assert said == ("step 2: train.py line 1 sets EPOCHS to 50; at most 10 is allowed",)


def test_what_an_interpreter_was_told_before_the_last_thousand_commands_is_told_of(tmp_path):
    told = [Call(action="Python REPL", args={"command": "epochs = 20"})] * 1001
    steps = [
        Step(number=number, call=call, observation="", seconds=0, clock=0)
        for number, call in enumerate(told, 1)
    ]
    (tmp_path / "workspace").mkdir()
    store = Store(tmp_path / "store", tmp_path / "workspace")
    store.snapshot(0)
    (tmp_path / "workspace" / "submission.csv").touch()
    store.snapshot(1001)
    (each,) = executed_scripts.find_executed_scripts(store, steps, "submission.csv")
    assert list(executed_scripts.format_violations([each], [()], ())) == [
        f"step 1001: {executed_scripts.TOO_MANY_SCRIPTS}"
    ]


@pytest.fixture
def laid(play, do, ruled, tmp_path):
    """Lays out the states of a run with many scripts: what is said of each, and what all take on the disk."""
    make = "for n in range(50): open(f'm{n}.py', 'w').write(f'# {n}'.ljust(1_000_000))"

    def lay(room):
        def behave(env):
            do(env, "Write File", file_name="make.py", content=make)
            do(env, "Execute Script", script_name="make.py")
            for number in range(5):
                do(env, "Python REPL", command=f"open('m0.py', 'w').write('# {number}')\n{SUBMIT}# {number}")
            do(env, "Write File", file_name="submission.csv", content="")

        folder = RunFolder(Path(play(behave, setup=ruled).folder))
        store = folder.open_store(ruled.data, writable=False)
        (tmp_path / "laid").mkdir()
        shelf = executed_scripts.ScriptExporter(store, tmp_path / "laid" / "contents", room)
        runs = [
            shelf.export(each, tmp_path / "laid" / str(number))
            for number, each in enumerate(executed_scripts.find_executed_scripts(store, folder.steps(), "."))
        ]
        sizes = {path.stat().st_ino: path.stat().st_blocks for path in (tmp_path / "laid").rglob("*")}
        return [each.incomplete_reason for each in runs], sum(sizes.values()) * 512

    return lay


def test_a_content_is_laid_out_once_however_many_states_hold_it(laid):
    unseen, size = laid(executed_scripts.MAX_EXPORT_BYTES)
    assert unseen == [""] * 6 and size < 60_000_000


def test_states_that_do_not_fit_are_told_of(laid):
    unseen, size = laid(20_000_000)
    assert unseen == ["", *["not all scripts could be looked at"] * 5] and size < 20_000_000
