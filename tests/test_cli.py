"""The command line: most of it in this process, real processes where signals, pipes and exit codes matter."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from mlagentbench.cli import app as command_line
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.start import start_run

PROMISED = {
    "task",
    "edition",
    "agent",
    "score",
    "baseline",
    "improvement",
    "success",
    "valid",
    "ending",
    "steps",
}
PROMISED |= {"seconds", "folder"}
Cli = Callable[..., "subprocess.CompletedProcess[str]"]
Said = tuple[int, str, str]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Exit code, standard output and standard error of a command."""

    def run_command(*args: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["mlagentbench", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            command_line.main()
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return run_command


@pytest.fixture(scope="module")
def finished(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the tuner that nobody changes."""
    folder = tmp_path_factory.mktemp("finished") / "a [bold] run[/]"
    assert start_run(setup, "tuner", folder, limits={"steps": 8}).score
    return folder


def complaint(said: Said) -> str:
    code, out, err = said
    assert code == 2 and out == ""
    assert err.startswith("mlagentbench: ") and err.count("\n") == 1, err
    return err


def test_mistakes_are_one_line_and_exit_code_two(
    call: Callable[..., Said], toy: Path, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "none.py").write_text("x = 1\n")
    for args, sentence in {
        ("run", "atlantis"): "No such task: 'atlantis'",
        ("run", toy, "--agent", "genius"): "no agent 'genius'; there are: ",
        ("run", toy, "--agent", tmp_path / "missing.py"): "there is no file",
        ("run", toy, "--agent", tmp_path / "none.py"): "must define one Agent, not 0",
        ("run", toy, "--edition", "pocket"): "has no edition 'pocket'; there are: open",
        ("run", toy, "--sandbox", "paper-bag"): "No such sandbox: 'paper-bag'. Available: bwrap, podman",
        ("run", toy, "--steps", "0"): "--steps",
        ("run", toy, "--steps", "many"): "--steps",
        ("run", toy, "--hours", "0", "--out", tmp_path / "x"): "hours: input should be greater than 0",
        ("run", toy, "--hours", "nan", "--out", tmp_path / "x"): "hours",
        ("run", toy, "--memory", "-1", "--out", tmp_path / "x"): "memory_gb",
        ("run", toy, "--seed", "-1"): "--seed",
        ("run", toy, "--colour", "red"): "--colour",
        ("run", toy, "--out", tmp_path / "full"): "is not empty",
        ("run", toy, "--instance", "unheard-of"): "is not prepared",
        ("run",): "TASK",
        ("dance",): "dance",
        (
            "list",
            "unicorns",
        ): "No such list: 'unicorns'. Available: tasks, agents, actions, models, runtimes.",
        ("resume", tmp_path): "is not a run",
        ("resume", tmp_path / "nowhere"): "is not a run",
        ("grade", tmp_path): "No runs found below",
        ("verify", tmp_path): "is not a run",
        ("show", tmp_path): "is not a run",
        ("show", tmp_path / "nowhere"): "neither the folder of a run nor a task",
        ("baseline", toy, "-n", "1"): "-n",
        ("prepare", "atlantis"): "No such task: 'atlantis'",
        ("prepare", toy, "--fresh", "--twin"): "choose one",
        ("prepare", toy, "--twin", "--data-only"): "Task toy has no twin",
    }.items():
        assert sentence in complaint(call(*args)), args
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("part", ["description.md", "starter", "grade.py", "prepare.py"])
def test_a_broken_task_folder_is_one_line(
    call: Callable[..., Said], variant: Callable[..., Path], part: str
) -> None:
    assert f"{part} is missing" in complaint(call("run", variant({part: None})))


def test_a_broken_task_toml_is_one_line(call: Callable[..., Said], variant: Callable[..., Path]) -> None:
    assert "not valid TOML" in complaint(call("run", variant({"task.toml": "title = ["}, "one")))
    assert "field required" in complaint(call("show", variant({"task.toml": "title = 'x'"}, "two")))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"format": 1}', b'{"format": "x"}'])
def test_a_damaged_run_is_one_line(call: Callable[..., Said], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    for command in ("resume", "grade", "verify", "show"):
        assert "run.json is damaged" in complaint(call(command, tmp_path))


def test_a_run_of_a_newer_version_and_a_damaged_result_are_one_line(
    call: Callable[..., Said], tmp_path: Path, setup: Setup
) -> None:
    start_run(setup, "nothing", tmp_path / "run")
    (tmp_path / "run" / "result.json").write_bytes(b"\xff")
    assert "result.json is damaged" in complaint(call("show", tmp_path / "run"))
    spec = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**spec, "format": 99}))
    assert "newer version" in complaint(call("show", tmp_path / "run"))


def test_a_real_process_shows_no_traceback_and_tells_the_shell(cli: Cli, toy: Path) -> None:
    done = cli("run", toy, "--agent", "genius")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    helped = cli()
    assert helped.returncode == 0 and "Usage" in helped.stdout


def test_a_run_prints_json_only_and_says_how_it_goes_on_the_other_stream(
    cli: Cli, toy: Path, tmp_path: Path
) -> None:
    done = cli("run", toy, "--agent", "baseline", "--seed", 3, "--out", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result.keys() >= PROMISED
    assert (result["task"], result["agent"], result["score"], result["steps"]) == ("toy", "baseline", 5.0, 2)
    assert result["folder"] == str(tmp_path / "run") and result["success"] is False
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and "Execute Script train.py: validation mean absolute error: 5.0" in lines[0]
    assert "\x1b" not in done.stdout + done.stderr


def test_a_run_without_a_folder_gets_one_below_runs(cli: Cli, toy: Path, tmp_path: Path) -> None:
    done = cli("run", toy, "--agent", "nothing", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("toy-nothing-") and f"mlagentbench show runs/{folder.name}" in done.stdout
    assert "INVALID: submission.csv is missing" in done.stdout


@pytest.mark.parametrize("what", ["tasks", "agents", "actions", "models", "runtimes"])
def test_every_list_is_a_table_and_json(call: Callable[..., Said], what: str) -> None:
    code, out, _ = call("list", what, "--json")
    rows = json.loads(out)
    assert code == 0 and isinstance(rows, list)
    code, out, _ = call("list", what)
    assert code == 0 and "\x1b" not in out
    assert out == "none\n" if not rows else len(out.splitlines()) == len(rows) + 2
    expected = {"agents": "tuner", "actions": "Execute Script", "runtimes": "tabular"}
    assert expected.get(what, "") in out


def test_a_run_is_told_as_a_story(call: Callable[..., Said], finished: Path) -> None:
    code, out, _ = call("show", finished)
    assert code == 0 and "\x1b" not in out
    assert "✓ 2  Execute Script train.py" in out and "validation mean absolute error: 5.0" in out
    assert "GUESS: 9.5 → 95" in out and "SUCCESS" not in out.splitlines()[0]
    assert f"mlagentbench show {finished}" in out  # brackets in a path are no markup
    assert max(map(len, out.splitlines())) > 100  # and no line of a pipe is broken
    code, out, _ = call("show", finished, "--json")
    told = json.loads(out)
    assert code == 0 and told["run"]["agent"] == "tuner" and len(told["steps"]) == told["result"]["steps"]


def test_one_step_is_shown_in_full_and_what_it_changed(call: Callable[..., Said], finished: Path) -> None:
    code, out, _ = call("show", finished, "--step", 3)
    assert code == 0 and "GUESS = 95.0" in out and "File train.py written." in out and "\x1b" not in out
    assert json.loads(call("show", finished, "--step", 3, "--json")[1])["call"]["action"] == "Write File"
    _, out, _ = call("show", finished, "--step", 3, "--diff")
    assert "-GUESS = 9.5\n+GUESS = 95.0\n" in out
    assert json.loads(call("show", finished, "--step", 3, "--diff", "--json")[1])["diff"] == out
    assert "no files changed" in call("show", finished, "--step", 1, "--diff")[1]
    assert "+++ b/submission.csv" in call("show", finished, "--diff")[1]
    for wrong in (0, -1, 99):
        assert "has no step" in complaint(call("show", finished, "--step", wrong))


def test_a_task_is_shown_as_a_card(call: Callable[..., Said], toy: Path) -> None:
    code, out, _ = call("show", toy)
    assert code == 0 and "baseline 5 ± 0.1 (n = 8)" in out and "for each id of questions.csv" in out
    assert json.loads(call("show", toy, "--json")[1])["better"] == "lower"


def test_what_an_agent_prints_cannot_command_the_terminal(
    call: Callable[..., Said], play: Callable[..., object], tmp_path: Path, do: Callable[..., str]
) -> None:
    nasty = "\x1b[2J\x1b]0;title\x07[bold]x[/nonsense] :smile:\x07\u202e\u2066"

    def act(env):
        do(env, nasty, **{nasty: nasty})
        do(env, "Write File", file_name="say.py", content=f"print({nasty!r})\n")
        do(env, "Execute Script", script_name="say.py")

    play(act)
    for args in ((), ("--step", 1), ("--step", 3)):
        code, out, _ = call("show", tmp_path / "run", *args)
        assert (
            code == 0 and not set("\x1b\x07\u202e\u2066") & set(out) and "[bold]x[/nonsense] :smile:" in out
        )
    assert call("show", tmp_path / "run", "--step", 2, "--diff")[0] == 0


def test_a_run_is_graded_and_verified_again(call: Callable[..., Said], finished: Path) -> None:
    code, out, err = call("grade", finished, "--every-step", "--json")
    grades = json.loads(out)
    assert code == 0 and [grade["step"] for grade in grades] == list(
        range(len(RunFolder(finished).steps()) + 1)
    )
    assert grades[0]["invalid"] == "submission.csv is missing" and grades[2]["score"] == 5.0 and err == ""
    code, out, _ = call("verify", finished)
    assert code == 0 and "FAIL" not in out and out.count("ok  ") > 20
    code, out, _ = call("verify", finished, "--json")
    assert code == 0 and all(check["holds"] for check in json.loads(out))


def test_a_claim_that_does_not_hold_is_exit_code_one(
    call: Callable[..., Said], setup: Setup, tmp_path: Path
) -> None:
    start_run(setup, "nothing", tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "success": True}))
    code, out, _ = call("verify", tmp_path / "run")
    assert code == 1 and "FAIL  result.json: success: recorded True, recomputed False" in out


def test_a_fault_is_exit_code_one_and_a_result(
    call: Callable[..., Said], variant: Callable[..., Path], tmp_path: Path
) -> None:
    task = variant({"grade.py": "def grade(submission, private):\n    1 / 0\n"})
    code, out, _ = call("run", task, "--agent", "baseline", "--out", tmp_path / "run", "--json")
    result = json.loads(out)
    assert (code, result["ending"], result["score"], result["success"]) == (1, "fault", None, False)
    assert "ZeroDivisionError" in result["note"]
    code, out, _ = call("show", tmp_path / "run")
    assert "FAULT (not counted)" in out
    code, out, err = call("grade", tmp_path / "run")
    assert code == 1 and "TaskFault: toy/grade.py failed: ZeroDivisionError" in err


def test_the_other_commands_speak_json_too(call: Callable[..., Said], toy: Path) -> None:
    code, out, _ = call("prepare", toy, "--json")
    assert code == 0 and json.loads(out)[0]["task"] == "toy"
    code, out, err = call("baseline", toy, "-n", 2, "--json")
    assert code == 0 and json.loads(out)["scores"] == [5.0, 5.0] and "run 2 of 2" in err
    code, out, _ = call("doctor", "--json")
    assert {"isolation", "limits", "runtime tabular"} <= {finding["what"] for finding in json.loads(out)}
    assert "isolation" in call("doctor")[1]


SLOW = """
import os
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call

class Slow(Agent):
    def run(self, env):
        print("what an agent prints is no result")
        env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(Call(action="Write File", args={"file_name": "loop.py", "content": f"# {os.environ['MARK']}\\nprint('begun', flush=True)\\nwhile True: pass"}))
        if not os.path.exists(os.environ["MARK"]):
            env.step(Call(action="Execute Script", args={"script_name": "loop.py", "arguments": os.environ["MARK"]}))
"""  # noqa: E501


def running(mark: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                mark in (process / "cmdline").read_text()
                and "State:\tZ" not in (process / "status").read_text()
            ):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_says_how_to_resume_and_leaves_nothing_running(
    number: signal.Signals, tmp_path: Path, toy: Path, cli: Cli, until: Callable[..., None]
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    mark = str(tmp_path / "mark-of-this-test")
    environment = {**os.environ, "MARK": mark}
    command = [
        "run",
        str(toy),
        "--agent",
        str(tmp_path / "slow.py"),
        "--out",
        str(tmp_path / "run"),
        "--json",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "mlagentbench", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as harness:
        assert harness.stderr
        assert "no result" in harness.stderr.readline()
        harness.stderr.readline()
        harness.stderr.readline()
        output = tmp_path / "run" / "outputs" / "step-0003.txt"
        until(lambda: output.is_file() and "begun" in output.read_text())
        assert running(mark)
        harness.send_signal(number)
        out, err = harness.communicate(timeout=20)
    assert (harness.returncode, out) == (130, "")
    assert err == f"mlagentbench: stopped; continue with: mlagentbench resume {tmp_path / 'run'}\n"
    until(lambda: not running(mark))  # the kernel takes a moment
    assert "unfinished" in cli("show", tmp_path / "run").stdout
    Path(mark).touch()
    done = cli("resume", tmp_path / "run", "--json", env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ending"] == "stopped" and json.loads(done.stdout)["steps"] == 2


def test_a_run_goes_on_when_nobody_listens_any_more(tmp_path: Path, toy: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mlagentbench",
        "run",
        str(toy),
        "--agent",
        "baseline",
        "--out",
        str(tmp_path / "run"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as harness:
        assert harness.stdout and harness.stderr
        harness.stdout.close()
        harness.stderr.close()
    result = RunFolder(tmp_path / "run").result
    assert result and (result.ending, result.score) == ("submitted", 5.0)


def test_a_killed_harness_takes_its_grader_along(
    tmp_path: Path, variant: Callable[..., Path], until: Callable[..., None]
) -> None:
    body = (
        f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}}.')\n    while True: pass\n"
    )
    task = variant({"grade.py": "def grade(submission, private):\n    " + body})
    command = [sys.executable, "-m", "mlagentbench", "run", str(task), "--agent", "baseline"]
    with subprocess.Popen([*command, "--out", str(tmp_path / "run")], stderr=subprocess.DEVNULL) as harness:
        until(lambda: (tmp_path / "pid").is_file() and "." in (tmp_path / "pid").read_text())
        harness.kill()
    grader = Path("/proc", (tmp_path / "pid").read_text().strip("."))
    until(lambda: not grader.exists() or "State:\tZ" in (grader / "status").read_text())
    assert RunFolder(tmp_path / "run").result is None


def test_in_a_terminal_the_run_is_drawn_live_and_the_verdict_stays(tmp_path: Path, toy: Path) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "mlagentbench", "run", str(toy), "--agent", "tuner", "--steps", "8"]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as harness:
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # the end of a terminal is an error
            while data := os.read(ours, 1 << 16):
                seen += data
    os.close(ours)
    assert harness.returncode == 0, seen
    assert b"Execute Script train.py" in seen and b"so far" in seen and b"left" in seen
    assert seen.rpartition(b"so far")[2].count(b"verdict") == 1


def test_a_working_folder_that_is_gone_spoils_no_exit_code(cli: Cli, tmp_path: Path, toy: Path) -> None:
    (tmp_path / "gone").mkdir()
    leave = ["sh", "-c", 'cd "$1" && rmdir "$1" && shift && exec "$@"', "sh", str(tmp_path / "gone")]
    command = [sys.executable, "-m", "mlagentbench", "run", str(toy), "--agent", "baseline"]
    done = subprocess.run(
        [*leave, *command, "--out", str(tmp_path / "run")], capture_output=True, check=False
    )
    assert done.returncode == 0 and f"show {tmp_path / 'run'}".encode() in done.stdout, done.stderr


@pytest.mark.parametrize("which", ["agent", "task", "out"])
def test_a_name_that_no_record_can_hold_is_a_mistake(cli: Cli, tmp_path: Path, toy: Path, which: str) -> None:
    name = os.fsencode(tmp_path) + b"/sl\xf6w"
    words: dict[str, str | bytes] = {"agent": "baseline", "task": str(toy), "out": str(tmp_path / "out")}
    words[which] = name + (b".py" if which == "agent" else b"")
    command = [sys.executable, "-m", "mlagentbench", "run", words["task"], "--agent", words["agent"]]
    done = subprocess.run([*command, "--out", words["out"]], capture_output=True, check=False)
    assert done.returncode == 2 and b"sl\\udcf6w" in done.stderr and b"is not valid UTF-8" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_place_that_no_record_can_hold_is_a_mistake_and_one_that_only_lies_there_works(
    cli: Cli, tmp_path: Path, toy: Path
) -> None:
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/sl\xf6w"))
    place.mkdir()
    refused = cli("run", toy, "--agent", "baseline", "--out", "run", cwd=place)
    assert refused.returncode == 2 and "valid UTF-8" in refused.stderr and "Traceback" not in refused.stderr
    assert cli("run", toy, "--agent", "baseline", "--out", tmp_path / "run").returncode == 0
    shutil.copytree(tmp_path / "run", place / "run")
    assert cli("verify", "run", cwd=place).returncode == 0
    again = cli("resume", "run", "--from-step", 0, "--json", cwd=place)
    assert again.returncode == 0 and json.loads(again.stdout)["score"] == 5.0, again.stderr


FILLING = """
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call

class Filling(Agent):
    def run(self, env):
        for number in range(30):
            content = "".join(str(self.random.random()) for _ in range(1000))
            env.step(Call(action="Write File", args={"file_name": f"f{number}", "content": content}))
"""
DISK = """
set -u
mount -t tmpfs -o size=600k tmpfs "$1/disk"
"$2" -m mlagentbench run "$3" --agent "$1/filling.py" --sandbox none --out "$1/disk/run" --json >"$1/out1" 2>"$1/err1"
echo $? >"$1/code1"
cp "$1/disk/run/trace.jsonl" "$1/trace1"
mount -o remount,size=50m "$1/disk"
"$2" -m mlagentbench show "$1/disk/run" >"$1/story"
"$2" -m mlagentbench resume "$1/disk/run" --json >"$1/out2" 2>"$1/err2"
echo $? >"$1/code2"
cp "$1/disk/run/trace.jsonl" "$1/trace2"
"""


def test_a_full_disk_is_a_fault_that_loses_nothing(tmp_path: Path, toy: Path) -> None:
    (tmp_path / "filling.py").write_text(FILLING)
    (tmp_path / "disk").mkdir()
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    shell = [*unshare, "sh", "-c", DISK, "sh", str(tmp_path), sys.executable, str(toy)]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "code1").read_text() == "1\n"
    said = (tmp_path / "err1").read_text().splitlines()[-1] + (tmp_path / "out1").read_text()
    assert ("No space left on device" in said or "disk full" in said) and "Traceback" not in said, said
    before = (tmp_path / "trace1").read_bytes()
    assert 5 < before.count(b"\n") < 30 and before.endswith(b"\n")
    assert "f0" in (tmp_path / "story").read_text()
    assert (tmp_path / "code2").read_text() == "0\n", (tmp_path / "err2").read_text()
    assert json.loads((tmp_path / "out2").read_text())["steps"] == 20  # as many as the toy allows
    assert (tmp_path / "trace2").read_bytes().startswith(before)


@pytest.mark.parametrize("given", [("--step", "3"), ("--diff",)])
def test_what_is_asked_of_a_run_is_not_ignored_for_a_task(
    cli: Cli, toy: Path, given: tuple[str, ...]
) -> None:
    done = cli("show", toy, *given)
    assert (done.returncode, done.stdout) == (2, "") and "--step and --diff are for runs" in done.stderr


def test_what_nobody_needs_is_neither_ok_nor_a_failure(
    call: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "podman").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    code, out, _ = call("doctor")
    assert re.search("^-     podman: cannot be used", out, re.MULTILINE)
    assert code == ("FAIL" in out)
