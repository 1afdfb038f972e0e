"""External programs in the sandbox: they change the workspace, and reach no model but the one of the run."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_model import FakeModel

from mlagentbench.agents.command import Command
from mlagentbench.errors import ModelFault, PromptRejected, PromptTooLong, UsageError
from mlagentbench.records import AgentSpec, Limits, Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import execute_run
from mlagentbench.runner.setup import Setup
from mlagentbench.runtimes.interpreters import find_interpreter

ASK_FUNCTION = """
import json, os, sys, urllib.request

def ask(text, path="/v1/chat/completions"):
    url = os.environ["ANTHROPIC_BASE_URL"] + path
    body = {"model": "any", "max_tokens": 100, "messages": [{"role": "user", "content": text}]}
    if path.endswith("/responses"):
        body = {"model": "any", "input": text}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(request))
    if "choices" in answer:
        return answer["choices"][0]["message"]["content"]
    if "output" in answer:
        return answer["output"][0]["content"][0]["text"]
    return answer["content"][0]["text"]
"""
PROGRAM = (
    ASK_FUNCTION
    + """
print("the task:", open(sys.argv[1]).read()[:20])
guess = ask("what should I guess?")
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
REPLIES = ["the id", PERFECT, "yes, you are"]
Attempt = Callable[..., Result]


@pytest.fixture
def run_command(setup: Setup, tmp_path: Path) -> Callable[..., Result]:
    """Runs an agent that asks no model."""

    def run(agent: Command) -> Result:
        agent.models = {"main": FakeModel([])}
        folder = RunFolder.create(
            tmp_path / "run", setup.create_run_spec(AgentSpec(agent="command"), 0, Limits())
        )
        with folder.lock():
            return execute_run(setup, agent, folder)

    return run


@pytest.fixture
def package_folder(tmp_path: Path, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the only source of packages, and an empty cache."""
    folder = tmp_path / "packages"
    (folder / "home").mkdir(parents=True)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    runtime = setup.runtime.folder
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(folder / "home"))
    (folder / "home" / "runtimes").mkdir()
    (folder / "home" / "runtimes" / runtime.name).symlink_to(runtime)
    return folder


def write_wheel(folder: Path, answer: int, name: str, needs: str = "", script: str = "") -> None:
    """Write a package with one module, and a console script that prints its number."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": f"ANSWER = {answer}\ndef main():\n    print('the answer is', ANSWER)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{script}\n" if script else "",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for file, text in files.items():
            archive.writestr(zipfile.ZipInfo(file), text)


def find_other_python() -> str:
    """A version of Python on this machine other than ours, if there is one."""
    for version in ("3.12", "3.13", "3.14", "3.11"):
        with contextlib.suppress(UsageError):
            if find_interpreter(version) != find_interpreter():
                return version
    pytest.skip("there is only one Python on this machine")


@pytest.fixture
def attempt(setup: Setup, tmp_path: Path) -> Attempt:
    """Runs a program with a model, or resumes its run."""

    def run_program(
        source: str, model: FakeModel, name: str = "run", setup: Setup = setup, **limits: Any
    ) -> Result:
        folder = tmp_path / "program"
        folder.mkdir(exist_ok=True)
        (folder / "main.py").write_text(source)
        agent = Command(command="python /opt/program/main.py {task}", program=str(folder))
        agent.models = {"main": model}
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

    return run_program


def test_the_edits_of_a_program_are_recorded_and_graded(attempt: Attempt, tmp_path: Path) -> None:
    result = attempt(PROGRAM, FakeModel(REPLIES))
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


def test_every_model_call_of_a_program_is_a_step_with_a_snapshot(
    attempt: Attempt, tmp_path: Path, setup: Setup
) -> None:
    attempt(PROGRAM, FakeModel(REPLIES))
    store = RunFolder(tmp_path / "run").open_store(setup.data, writable=False)
    created = [{"guess.txt", "submission.csv"} & store.state(step).keys() for step in range(5)]
    assert created == [
        set(),
        set(),
        {"guess.txt"},
        {"guess.txt", "submission.csv"},
        {"guess.txt", "submission.csv"},
    ]


def test_model_calls_of_a_program_are_recorded_with_the_whole_prompt(
    attempt: Attempt, tmp_path: Path
) -> None:
    attempt(PROGRAM, FakeModel(REPLIES))
    calls = list(RunFolder(tmp_path / "run").calls())
    assert [call.prompt.messages[-1].text for call in calls] == [
        "what should I guess?",
        "and the script?",
        "am I done?",
    ]
    assert (calls[0].step, calls[0].inside, calls[0].prompt.max_tokens) == (2, False, 100)


@pytest.mark.parametrize("kept", range(4))
def test_a_resumed_run_gets_the_recorded_replies_and_ends_the_same(
    attempt: Attempt, tmp_path: Path, kept: int
) -> None:
    attempt(PROGRAM, FakeModel(REPLIES))
    folder = RunFolder(tmp_path / "run")
    original = [(step.call, step.observation.partition("]")[2]) for step in folder.steps()]
    lines = folder.model_calls.path.read_text().splitlines(keepends=True)
    folder.model_calls.path.write_text("".join(lines[:kept]) + '{"incomplete')
    (folder.path / "result.json").unlink()
    model = FakeModel(REPLIES)
    result = attempt(PROGRAM, model)
    assert (result.score, result.tokens, len(model.prompts)) == (0.0, 120, 3 - kept)
    assert [(step.call, step.observation.partition("]")[2]) for step in folder.steps()] == original


def test_a_program_reaches_no_network_and_no_api_key(attempt: Attempt, tmp_path: Path) -> None:
    os.environ["OPENAI_API_KEY"] = "sk-canary-0123456789"
    try:
        source = ASK_FUNCTION + (
            "import socket\n"
            "for address in (('1.1.1.1', 53), ('10.0.2.2', 80), ('127.0.0.1', 22)):\n"
            "    try:\n        socket.create_connection(address, 1); print('REACHED', address)\n"
            "    except OSError as error:\n        print('no', address)\n"
            "print(sorted(os.listdir('/sys/class/net')) if os.path.isdir('/sys/class/net') else 'no /sys')\n"
            "print(dict(os.environ))\nprint(ask('x'))\n"
        )
        attempt(source, FakeModel(["fine"]))
    finally:
        del os.environ["OPENAI_API_KEY"]
    recorded = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert b"sk-canary" not in recorded and b"REACHED" not in recorded and b"fine" in recorded
    assert b"'OPENAI_API_KEY': 'none-needed'" in recorded


def test_an_exhausted_budget_ends_the_program(attempt: Attempt, tmp_path: Path) -> None:
    endless = ASK_FUNCTION + "while True:\n    print(ask('more'))\n"
    result = attempt(endless, FakeModel(["x"] * 99), tokens=121)
    assert (result.ending, result.tokens) == ("tokens", 120)
    result = attempt(endless, FakeModel(["x"] * 99), "steps", steps=5)
    assert (result.ending, result.steps) == ("steps", 5)


def test_a_program_that_never_asks_the_model_is_stopped_at_the_time_limit(
    attempt: Attempt, until: Callable[..., None]
) -> None:
    result = attempt("while True: pass\n", FakeModel([]), hours=0.0004)
    assert result.ending == "time"
    until(lambda: not processes_running("/opt/program/main.py"))  # a test in parallel may run one, too


def processes_running(program: str) -> list[str]:
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if program.encode() in words and b"bwrap" not in words[0]:
            pids.append(path.parent.name)
    return pids


UNUSUAL_PROGRAMS = {
    "fails after a reply": (ASK_FUNCTION + "print(ask('x'))\n1 / 0", "ZeroDivisionError", "exit code 1"),
    "is killed after a reply": (
        ASK_FUNCTION + "print(ask('x'), flush=True)\nos.kill(os.getpid(), 9)",
        "fine",
        "exit code 137",
    ),
    "closes the connection": (
        ASK_FUNCTION + "import socket\ns = socket.create_connection(('127.0.0.1', 8791))\n"
        "s.sendall(b'POST /v1/messages HTTP/1.1\\r\\nContent-Length: 50\\r\\n\\r\\n{')\n"
        "s.close()\nprint('left')",
        "left",
        "exit code 0",
    ),
    "asks for an unknown path": (
        ASK_FUNCTION
        + "try:\n    ask('x', '/v1/nothing')\nexcept Exception as error:\n    print('got', error)\nask('x')",
        "got HTTP Error 404",
        "exit code 0",
    ),
}


@pytest.mark.parametrize(
    ("source", "output", "outcome"), UNUSUAL_PROGRAMS.values(), ids=UNUSUAL_PROGRAMS.keys()
)
def test_however_a_program_ends_its_workspace_is_graded(
    attempt: Attempt, tmp_path: Path, source: str, output: str, outcome: str
) -> None:
    result = attempt(source, FakeModel(["fine"]))
    assert (result.ending, result.note) == ("submitted", "submission.csv is missing")
    observations = "".join(step.observation for step in RunFolder(tmp_path / "run").steps())
    assert outcome in observations and output in observations


IMAGE = "[{'type': 'image', 'source': {'type': 'base64', 'data': ''}}]"
PROGRAMS_WITHOUT_A_REPLY = {
    "a traceback": ("raise ImportError('no numpy')", ("exit code 1 ", "ImportError: no numpy")),
    "a command that is not there": ("import sys; sys.exit(127)", ("exit code 127 ", "It printed: nothing")),
    "a refused request": (
        ASK_FUNCTION + f"import urllib.error\ntry:\n    ask({IMAGE}, '/v1/messages')\n"
        "except urllib.error.HTTPError as error:\n    print(error.read().decode())",
        ("exit code 0 ", "A request was refused: /v1/messages: Only text", "not images", '"type": "error"'),
    ),
}


@pytest.mark.parametrize(
    ("source", "words"), PROGRAMS_WITHOUT_A_REPLY.values(), ids=PROGRAMS_WITHOUT_A_REPLY.keys()
)
def test_a_program_that_fails_before_the_first_reply_is_a_fault(
    attempt: Attempt, source: str, words: tuple[str, ...]
) -> None:
    result = attempt(source, FakeModel([]))
    assert (result.ending, result.score) == ("fault", None)
    assert all(word in result.note for word in words), result.note


def test_the_person_sees_a_refused_request_and_a_setting_that_the_model_does_not_have(
    cli: Any, toy: Path, tmp_path: Path
) -> None:
    script, program = tmp_path / "script.txt", tmp_path / "program"
    script.write_text("fine")
    program.mkdir()
    source = ASK_FUNCTION + f"try:\n    ask({IMAGE})\nexcept OSError:\n    print(ask('x'))\n"
    (program / "main.py").write_text(source.replace('"max_tokens"', '"top_k": 5, "max_tokens"'))
    command = ["run", toy, "--agent", "command", "--model", f"scripted:{script}", "--out", tmp_path / "run"]
    command += ["--set", f"program={program}", "--set", "command=python /opt/program/main.py"]
    completed = cli(*command)
    assert "A request of the program was refused: /v1/chat/completions: Only text" in completed.stderr
    assert "The model scripted does not have the setting top_k, which the program" in completed.stderr
    steps = RunFolder(tmp_path / "run").steps()
    assert "[refused: /v1/chat/completions: Only text" in steps[0].observation


def test_a_prompt_that_the_model_rejects_is_the_programs_to_handle(attempt: Attempt, tmp_path: Path) -> None:
    source = ASK_FUNCTION + "try:\n    ask('x')\nexcept OSError as error:\n    print(error.read(), ask('y'))"
    result = attempt(source, FakeModel([PromptRejected("no such tool"), "better"]))
    folder = RunFolder(tmp_path / "run")
    assert result.ending == "submitted" and [call.rejected for call in folder.calls()] == ["no such tool", ""]
    assert "no such tool" in folder.steps()[2].observation and "better" in folder.steps()[2].observation
    (folder.path / "result.json").unlink()
    assert attempt(source, FakeModel([])).ending == "submitted"  # replayed


def test_a_program_gets_an_error_for_a_prompt_that_is_too_long(attempt: Attempt, tmp_path: Path) -> None:
    source = ASK_FUNCTION + (
        "import urllib.error\ntry:\n    ask('x' * 1000)\n"
        "except urllib.error.HTTPError as error:\n    print(error.code, error.read().decode())\n"
        "print(ask('x'))"
    )
    attempt(source, FakeModel([PromptTooLong("9 tokens at most"), "better"]))
    observation = RunFolder(tmp_path / "run").steps()[-2].observation
    assert "400" in observation and "context_length_exceeded" in observation and "better" in observation


def test_a_failing_provider_is_a_fault(attempt: Attempt) -> None:
    result = attempt(ASK_FUNCTION + "ask('x')", FakeModel([ModelFault("gone")]))
    assert (result.ending, result.note) == ("fault", "ModelFault: gone")


def test_concurrent_model_calls_are_answered_one_after_another(attempt: Attempt, tmp_path: Path) -> None:
    source = ASK_FUNCTION + (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(5) as pool:\n    print(sorted(pool.map(ask, 'abcde')))\n"
    )
    attempt(source, FakeModel(["1", "2", "3", "4", "5"]))
    assert "['1', '2', '3', '4', '5']" in RunFolder(tmp_path / "run").steps()[-2].observation


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a command line"),
        ({"command": "'"}, "cannot be parsed"),
        ({"command": "x", "program": "/nowhere"}, "must be a folder; /nowhere is not one"),
        ({"command": "x", "home": "/nowhere"}, "option home must be a folder; /nowhere is not one"),
        ({"command": "x", "program": __file__}, f"is a file. Try {Path(__file__).parent}"),
        (
            {"command": "/opt/program/node_modules/.bin/x", "program": str(Path(__file__).parent)},
            "has no node_modules/.bin/x. Run npm install in it first",
        ),
        ({"command": "x", "python": "3.12"}, "set packages, too"),
        ({"command": "x", "packages": "a==1", "python": "9.9"}, "Python 9.9 is needed, and not on this"),
        ({"command": "x", "packages": "a==1", "python": "new"}, "'new' is not a version of Python"),
        ({"command": "x", "packages": "a==1", "python": "/bin/true"}, "/bin/true is not a Python"),
    ],
)
def test_wrong_options_are_a_usage_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Command(**options)


DOORS = """
import os, ssl, subprocess, sys
url, port, home_file = sys.argv[1:]
assert url == f"http://127.0.0.1:{port}" and os.environ["WHERE"] == f"{url}/v1", (url, port)
assert open(os.path.expanduser("~/.config/tool.ini")).read() == "colour = blue"
open(os.path.expanduser("~/.config/more"), "w").write("the home folder is writable")
assert len(ssl.create_default_context(cafile="/etc/ssl/certs/ca-certificates.crt").get_ca_certs()) > 50
os.chdir("/workspace")
print("all doors are open")
"""


def test_a_program_gets_the_address_its_home_folder_and_certificates(
    setup: Setup, tmp_path: Path, run_command: Callable[..., Result]
) -> None:
    home = tmp_path / "home" / ".config"
    home.mkdir(parents=True)
    (home / "tool.ini").write_text("colour = blue")
    (home / "tool.ini").chmod(0o600)
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "main.py").write_text(DOORS)
    agent = Command(
        command="python /opt/program/main.py {url} {port} {task}",
        program=str(tmp_path / "program"),
        home=str(tmp_path / "home"),
        environment={"WHERE": "{url}/v1"},
    )
    run_command(agent)
    assert "all doors are open" in RunFolder(tmp_path / "run").steps()[0].observation
    program = RunFolder(tmp_path / "run").spec.program
    assert program and program.name == "program" and len(program.hash) == 64


def test_packages_have_console_scripts_and_a_lock(
    package_folder: Path, tmp_path: Path, run_command: Callable[..., Result]
) -> None:
    write_wheel(package_folder, 41, "tiny", needs="helper", script="tiny = tiny:main")
    write_wheel(package_folder, 1, "helper")
    run_command(Command(command="/opt/agent/bin/tiny", packages="tiny==1.0"))
    folder = RunFolder(tmp_path / "run")
    assert "the answer is 41" in folder.steps()[0].observation
    lock = folder.path / "outputs" / "program-lock.txt"
    assert [line.split("==")[0] for line in lock.read_text().splitlines()] == ["helper", "tiny"]
    again = Command(command="/opt/agent/bin/tiny", packages=str(lock))
    again.prepare()
    assert folder.spec.program and again.program and again.program.hash == folder.spec.program.hash


def test_packages_may_have_another_python(
    package_folder: Path, tmp_path: Path, run_command: Callable[..., Result]
) -> None:
    other = find_other_python()
    write_wheel(package_folder, 41, "tiny", script="tiny = tiny:main")
    command = "{python} -c 'import sys, tiny; print(sys.version_info[:2], tiny.ANSWER)'"
    run_command(Command(command=command, packages="tiny==1.0", python=other))
    major, minor = other.split(".")
    assert f"({major}, {minor}) 41" in RunFolder(tmp_path / "run").steps()[0].observation


def test_packages_must_be_pinned(cli: Any, toy: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("x")
    command = (
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
    completed = cli(*command, "--model", f"scripted:{script}")
    assert completed.returncode == 2 and "requests is not pinned" in completed.stderr


def test_a_program_is_killed_with_the_harness_leaves_nothing_and_can_be_resumed(
    cli: Any, toy: Path, tmp_path: Path, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "home"  # an empty cache, so that everything left in it is from this run
    cache.mkdir()
    (cache / "runtimes").symlink_to(setup.runtime.folder.parent)
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(cache))
    program = tmp_path / "program"
    program.mkdir()
    (program / "main.py").write_text(
        PROGRAM.replace("script = ask", "import time; time.sleep(float(guess))\nscript = ask")
    )
    script, out = tmp_path / "script.txt", tmp_path / "run"
    script.write_text("\n=====\n".join(["600", PERFECT, "yes"]))
    command = ["run", toy, "--agent", "command", "--model", f"scripted:{script}", "--out", out]
    command += ["--set", f"program={program}", "--set", "command=python /opt/program/main.py {task}"]
    harness = subprocess.Popen(
        [sys.executable, "-m", "mlagentbench", *map(str, command)], stderr=subprocess.DEVNULL
    )
    deadline, calls = time.monotonic() + 30, out / "model_calls.jsonl"
    while not (calls.is_file() and calls.read_text().endswith("\n")) and time.monotonic() < deadline:
        assert harness.poll() is None
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    while processes_running("/opt/program/main.py") and time.monotonic() < deadline:
        pass
    assert not processes_running("/opt/program/main.py")
    assert '"text":"600"' in calls.read_text()
    # Replayed, the program would otherwise sleep for 600 seconds again.
    calls.write_text(calls.read_text().replace('"text":"600"', '"text":"0"'))
    completed = cli("resume", out, "--json")
    assert json.loads(completed.stdout)["score"] == 0.0, completed.stderr
    assert not list((cache / "temporary").iterdir()) and not (cache / "endpoints").exists()


def test_mounts_are_refused_without_a_sandbox_before_the_run_starts(
    cli: Any, toy: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.txt"
    script.write_text("yes")
    (tmp_path / "plan.toml").write_text(
        f"tasks = ['{toy}']\nmodels = ['scripted:{script}']\nsandbox = 'none'\n"
        f"agents = [{{ name = 'command', options = {{ command = 'true', program = '{tmp_path}' }} }}]\n"
    )
    options = ("--set", "command=echo", "--set", f"program={tmp_path}", "--sandbox", "none")
    for command in (
        ("run", toy, "--agent", "command", "--model", f"scripted:{script}", *options),
        ("batch", tmp_path / "plan.toml"),
    ):
        completed = cli(*command, "--out", tmp_path / "out")
        assert completed.returncode == 2 and "Without a sandbox there is no /opt" in completed.stderr
        assert not (tmp_path / "out").exists()


def test_without_a_sandbox_the_port_is_a_free_one(cli: Any, toy: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("yes")
    options = ("--sandbox", "none", "--out", tmp_path / "run", "--set", "command=echo {url} is at {port}")
    cli("run", toy, "--agent", "command", "--model", f"scripted:{script}", *options)
    observation = RunFolder(tmp_path / "run").steps()[0].observation
    assert re.search(r"^http://127\.0\.0\.1:(\d+) is at \1$", observation, re.MULTILINE), observation
