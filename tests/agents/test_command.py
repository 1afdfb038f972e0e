"""Outside programs in the sandbox: what they do lands in the workspace, and only our model answers them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_model import FakeModel

from mlagentbench.agents.command import Command
from mlagentbench.errors import ModelFault, PromptTooLong, UsageError
from mlagentbench.records import AgentSpec, Limits, Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import execute_run
from mlagentbench.runner.setup import Setup

ASKING = """
import json, os, sys, urllib.request

def ask(text, path="/v1/chat/completions"):
    url = os.environ["ANTHROPIC_BASE_URL"] + path
    body = {"model": "any", "max_tokens": 100, "messages": [{"role": "user", "content": text}], "input": text}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(request))
    if "choices" in answer:
        return answer["choices"][0]["message"]["content"]
    if "output" in answer:
        return answer["output"][0]["content"][0]["text"]
    return answer["content"][0]["text"]
"""
WORKING = (
    ASKING
    + """
print("the task:", open(sys.argv[1]).read()[:20])
guess = ask("what shall I guess?")
print("I guess", guess)
open("guess.txt", "w").write(guess)
script = ask("and the script?", "/v1/messages")
open("train.py", "w").write(script)
os.system("python train.py")
print(ask("am I done?", "/v1/responses"))
"""
)
PERFECT = """ids = [line.strip() for line in open("questions.csv")][1:]
open("submission.csv", "w").write("id,value\\n" + "".join(f"{i},{i}\\n" for i in ids))
print("validation mean absolute error: 0.0")
"""
SAID = ["the id", PERFECT, "yes, you are"]
Attempt = Callable[..., Result]


@pytest.fixture
def attempt(setup: Setup, tmp_path: Path) -> Attempt:
    """A run of a program that is written here, or its continuation."""

    def go(source: str, parrot: FakeModel, name: str = "run", setup: Setup = setup, **limits: Any) -> Result:
        folder = tmp_path / "program"
        folder.mkdir(exist_ok=True)
        (folder / "main.py").write_text(source)
        agent = Command(command="python /opt/program/main.py {task}", program=str(folder))
        agent.models = {"main": parrot}
        path = tmp_path / name
        if (path / "run.json").is_file():
            run_folder = RunFolder(path)
        else:
            run_folder = RunFolder.create(
                path, setup.create_run_spec(AgentSpec(agent="command"), 0, Limits(**limits))
            )
        with run_folder.lock():
            run_folder.rewind(None, from_start=True)
            return execute_run(setup, agent, run_folder)

    return go


def test_its_edits_land_in_the_workspace_and_are_graded(attempt: Attempt, tmp_path: Path) -> None:
    result = attempt(WORKING, FakeModel(SAID))
    assert (result.ending, result.score, result.success, result.tokens) == ("submitted", 0.0, True, 120), (
        result.note
    )
    steps = RunFolder(tmp_path / "run").steps()
    assert [step.call.action for step in steps] == ["Command"] * 4 + ["Final Answer"]
    assert "the task: Write submission.csv" in steps[0].observation and steps[0].observation.endswith(
        "[it asks the model]"
    )
    assert steps[1].call.thought == "the id" and "I guess the id" in steps[1].observation
    assert "validation mean absolute error: 0.0" in steps[2].observation
    assert steps[3].observation.startswith("[exit code 0") and "yes, you are" in steps[3].observation
    assert steps[3].execution and steps[3].execution.exit_code == 0


def test_every_question_is_a_step_with_its_snapshot(attempt: Attempt, tmp_path: Path, setup: Setup) -> None:
    attempt(WORKING, FakeModel(SAID))
    store = RunFolder(tmp_path / "run").open_store(setup.data, writable=False)
    there = [{"guess.txt", "submission.csv"} & store.state(step).keys() for step in range(5)]
    assert there == [
        set(),
        set(),
        {"guess.txt"},
        {"guess.txt", "submission.csv"},
        {"guess.txt", "submission.csv"},
    ]


def test_its_questions_are_recorded_with_the_whole_prompt(attempt: Attempt, tmp_path: Path) -> None:
    attempt(WORKING, FakeModel(SAID))
    calls = list(RunFolder(tmp_path / "run").calls())
    assert [call.prompt.messages[-1].text for call in calls] == [
        "what shall I guess?",
        "and the script?",
        "am I done?",
    ]
    assert (calls[0].step, calls[0].inside, calls[0].prompt.max_tokens) == (2, False, 100)


@pytest.mark.parametrize("kept", range(4))
def test_a_resumed_run_hears_the_recorded_replies_and_ends_the_same(
    attempt: Attempt, tmp_path: Path, kept: int
) -> None:
    attempt(WORKING, FakeModel(SAID))
    folder = RunFolder(tmp_path / "run")
    whole = [(step.call, step.observation.partition("]")[2]) for step in folder.steps()]
    lines = folder.model_calls.path.read_text().splitlines(keepends=True)
    folder.model_calls.path.write_text("".join(lines[:kept]) + '{"torn')
    (folder.path / "result.json").unlink()
    parrot = FakeModel(SAID)
    result = attempt(WORKING, parrot)
    assert (result.score, result.tokens, len(parrot.prompts)) == (0.0, 120, 3 - kept)
    assert [(step.call, step.observation.partition("]")[2]) for step in folder.steps()] == whole


def test_nothing_else_of_the_network_is_reachable_and_no_key_is_there(
    attempt: Attempt, tmp_path: Path
) -> None:
    os.environ["OPENAI_API_KEY"] = "sk-canary-0123456789"
    try:
        source = ASKING + (
            "import socket\n"
            "for place in (('1.1.1.1', 53), ('10.0.2.2', 80), ('127.0.0.1', 22)):\n"
            "    try:\n        socket.create_connection(place, 1); print('REACHED', place)\n"
            "    except OSError as error:\n        print('no', place)\n"
            "print(sorted(os.listdir('/sys/class/net')) if os.path.isdir('/sys/class/net') else 'no /sys')\n"
            "print(dict(os.environ))\nprint(ask('x'))\n"
        )
        attempt(source, FakeModel(["fine"]))
    finally:
        del os.environ["OPENAI_API_KEY"]
    everything = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert b"sk-canary" not in everything and b"REACHED" not in everything and b"fine" in everything
    assert b"'OPENAI_API_KEY': 'none-needed'" in everything


def test_a_used_up_budget_ends_the_program(attempt: Attempt, tmp_path: Path) -> None:
    endless = ASKING + "while True:\n    print(ask('more'))\n"
    result = attempt(endless, FakeModel(["x"] * 99), tokens=121)
    assert (result.ending, result.tokens) == ("tokens", 120)
    result = attempt(endless, FakeModel(["x"] * 99), "steps", steps=5)
    assert (result.ending, result.steps) == ("steps", 5)


def test_a_program_that_never_asks_is_stopped_by_the_clock(
    attempt: Attempt, until: Callable[..., None]
) -> None:
    result = attempt("while True: pass\n", FakeModel([]), hours=0.0004)
    assert result.ending == "time"
    until(lambda: not processes("/opt/program/main.py"))  # others of another test may be there for a moment


def processes(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words and b"bwrap" not in words[0]:
            found.append(path.parent.name)
    return found


ODD = {
    "that fails": ("1 / 0", "ZeroDivisionError", "exit code 1"),
    "that is killed": ("import os; os.kill(os.getpid(), 9)", "", "exit code 137"),
    "that hangs up": (
        ASKING + "import socket\ns = socket.create_connection(('127.0.0.1', 8791))\n"
        "s.sendall(b'POST /v1/messages HTTP/1.1\\r\\nContent-Length: 50\\r\\n\\r\\n{')\ns.close()\nprint('left')",
        "left",
        "exit code 0",
    ),
    "that talks nonsense": (
        ASKING + "try:\n    ask('x', '/v1/nothing')\nexcept Exception as error:\n    print('heard', error)",
        "heard HTTP Error 404",
        "exit code 0",
    ),
}


@pytest.mark.parametrize(("source", "said", "how"), ODD.values(), ids=ODD.keys())
def test_an_odd_program_ends_and_what_it_left_is_graded(
    attempt: Attempt, tmp_path: Path, source: str, said: str, how: str
) -> None:
    result = attempt(source, FakeModel([]))
    assert (result.ending, result.note) == ("submitted", "submission.csv is missing")
    seen = RunFolder(tmp_path / "run").steps()[0].observation
    assert how in seen and said in seen


def test_a_prompt_that_is_too_long_is_told_to_the_program(attempt: Attempt, tmp_path: Path) -> None:
    source = ASKING + (
        "import urllib.error\ntry:\n    ask('x' * 1000)\n"
        "except urllib.error.HTTPError as error:\n    print(error.code, error.read().decode())\nprint(ask('x'))"
    )
    attempt(source, FakeModel([PromptTooLong("9 tokens at most"), "better"]))
    seen = RunFolder(tmp_path / "run").steps()[-2].observation
    assert "400" in seen and "context_length_exceeded" in seen and "better" in seen


def test_a_provider_that_fails_is_a_fault_of_the_run(attempt: Attempt) -> None:
    result = attempt(ASKING + "ask('x')", FakeModel([ModelFault("gone")]))
    assert (result.ending, result.note) == ("fault", "ModelFault: gone")


def test_several_questions_at_once_are_answered_one_after_another(attempt: Attempt, tmp_path: Path) -> None:
    source = ASKING + (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(5) as pool:\n    print(sorted(pool.map(ask, 'abcde')))\n"
    )
    attempt(source, FakeModel(["1", "2", "3", "4", "5"]))
    assert "['1', '2', '3', '4', '5']" in RunFolder(tmp_path / "run").steps()[-2].observation


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs a command line"),
        ({"command": "'"}, "cannot be parsed"),
        ({"command": "x", "program": "/nowhere"}, "must be a folder; /nowhere is not one"),
    ],
)
def test_wrong_options_are_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Command(**options)


def test_packages_must_be_pinned(cli: Any, toy: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("x")
    given = (
        "run",
        toy,
        "--agent",
        "command",
        "--set",
        "command=x",
        "--set",
        "packages=requests",
        "--out",
        tmp_path / "r",
    )
    done = cli(*given, "--model", f"scripted:{script}")
    assert done.returncode == 2 and "requests is not pinned" in done.stderr


MINI = """THOUGHT: look around

```mswea_bash_command
ls && cat train.py
```
=====
THOUGHT: each id is its own value

```mswea_bash_command
cat <<'EOF' > train.py
%sEOF
python train.py
```
=====
THOUGHT: done

```mswea_bash_command
echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT
```
"""
MINI_COMMAND = (
    "{python} -m minisweagent.run.mini -c mini_textbased.yaml -m openai/any --model-class litellm_textbased"
    " -y --exit-immediately --cost-limit 0 -t {description}"
)
MINI_VARIABLES = {
    "MSWEA_CONFIGURED": "true",
    "MSWEA_COST_TRACKING": "ignore_errors",
    "MSWEA_SILENT_STARTUP": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}


@pytest.mark.slow  # downloads some 80 packages, once
def test_mini_swe_agent_from_pypi_works_on_a_task(cli: Any, toy: Path, tmp_path: Path) -> None:
    script, out = tmp_path / "script.txt", tmp_path / "run"
    script.write_text(MINI % PERFECT)
    given = ["run", toy, "--agent", "command", "--model", f"scripted:{script}", "--out", out, "--json"]
    given += ["--set", "packages=mini-swe-agent==2.4.6", "--set", f"command={MINI_COMMAND}"]
    done = cli(*given, "--set", f"environment={json.dumps(MINI_VARIABLES)}", timeout=600)
    result = json.loads(done.stdout)
    assert (result["success"], result["steps"]) == (True, 5), done.stderr


def test_killed_with_the_harness_nothing_is_left_and_resume_finishes(
    cli: Any, toy: Path, tmp_path: Path, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "home"  # of its own, in which all that is left is ours
    cache.mkdir()
    (cache / "runtimes").symlink_to(setup.runtime.folder.parent)
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(cache))
    program = tmp_path / "program"
    program.mkdir()
    (program / "main.py").write_text(
        WORKING.replace("script = ask", "import time; time.sleep(float(guess))\nscript = ask")
    )
    script, out = tmp_path / "script.txt", tmp_path / "run"
    script.write_text("\n=====\n".join(["600", PERFECT, "yes"]))
    given = ["run", toy, "--agent", "command", "--model", f"scripted:{script}", "--out", out]
    given += ["--set", f"program={program}", "--set", "command=python /opt/program/main.py {task}"]
    child = subprocess.Popen(
        [sys.executable, "-m", "mlagentbench", *map(str, given)], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 30
    while not (out / "model_calls.jsonl").is_file() and time.monotonic() < deadline:
        assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    while processes("/opt/program/main.py") and time.monotonic() < deadline:
        pass
    assert not processes("/opt/program/main.py")
    calls = out / "model_calls.jsonl"
    calls.write_text(
        calls.read_text().replace('"text":"600"', '"text":"0"')
    )  # nobody wants to wait so long again
    done = cli("resume", out, "--json")
    assert json.loads(done.stdout)["score"] == 0.0, done.stderr
    assert not list((cache / "temporary").iterdir()) and not (cache / "endpoints").exists()


def test_what_only_a_sandbox_can_mount_is_refused_without_one_before_a_run_begins(
    cli: Any, toy: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.txt"
    script.write_text("yes")
    (tmp_path / "plan.toml").write_text(
        f"tasks = ['{toy}']\nmodels = ['scripted:{script}']\nsandbox = 'none'\n"
        f"agents = [{{ name = 'command', options = {{ command = 'true', program = '{tmp_path}' }} }}]\n"
    )
    told = ("--set", "command=echo", "--set", f"program={tmp_path}", "--sandbox", "none")
    for given in (
        ("run", toy, "--agent", "command", "--model", f"scripted:{script}", *told),
        ("batch", tmp_path / "plan.toml"),
    ):
        done = cli(*given, "--out", tmp_path / "out")
        assert done.returncode == 2 and "Without a sandbox there is no /opt" in done.stderr
        assert not (tmp_path / "out").exists()
