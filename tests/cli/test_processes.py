"""The command line as a real process: signals, closed pipes, terminals, full disks."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from mlagentbench.runner.folder import RunFolder

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
Until = Callable[[Callable[[], object]], None]
HARNESS = (sys.executable, "-m", "mlagentbench")
SLOW_AGENT = """
import os
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call

LOOP = f"# {os.environ['MARK']}\\nprint('started', flush=True)\\nwhile True: pass"

class Slow(Agent):
    def run(self, env):
        print("printed by the agent")
        env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(Call(action="Write File", args={"file_name": "loop.py", "content": LOOP}))
        if not os.path.exists(os.environ["MARK"]):
            args = {"script_name": "loop.py", "arguments": os.environ["MARK"]}
            env.step(Call(action="Execute Script", args=args))
"""


def running_commands(mark: str) -> list[str]:
    """The command lines of all running processes that contain `mark`."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command, status = (process / "cmdline").read_text(), (process / "status").read_text()
            if mark in command and "State:\tZ" not in status:
                commands.append(command)
    return commands


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_how_to_resume_and_leaves_nothing_running(
    signal_number: signal.Signals,
    tmp_path: Path,
    toy: Path,
    cli: Cli,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "slow.py").write_text(SLOW_AGENT)
    mark = str(tmp_path / "mark-of-this-test")
    monkeypatch.setenv("MARK", mark)
    command = [*HARNESS, "run", toy, "--agent", tmp_path / "slow.py", "--out", tmp_path / "run", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as harness:
        assert harness.stderr
        assert "printed by the agent" in harness.stderr.readline()
        harness.stderr.readline()
        harness.stderr.readline()
        output = tmp_path / "run" / "outputs" / "step-0003.txt"
        until(lambda: output.is_file() and "started" in output.read_text())
        assert running_commands(mark)
        harness.send_signal(signal_number)
        out, err = harness.communicate(timeout=20)
    assert (harness.returncode, out) == (130, "")
    assert err == f"mlagentbench: stopped; continue with: mlagentbench resume {tmp_path / 'run'}\n"
    until(lambda: not running_commands(mark))  # the kernel takes a moment
    assert "unfinished" in cli("show", tmp_path / "run").stdout
    Path(mark).touch()
    resumed = cli("resume", tmp_path / "run", "--json")
    assert resumed.returncode == 0, resumed.stderr
    result = json.loads(resumed.stdout)
    assert result["ending"] == "stopped" and result["steps"] == 2


def test_a_run_continues_when_the_readers_of_its_output_are_gone(tmp_path: Path, toy: Path) -> None:
    command = [*HARNESS, "run", toy, "--agent", "baseline", "--out", tmp_path / "run"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as harness:
        assert harness.stdout and harness.stderr
        harness.stdout.close()
        harness.stderr.close()
    result = RunFolder(tmp_path / "run").result
    assert result and (result.ending, result.score) == ("submitted", 5.0)


def test_the_grader_dies_with_a_killed_harness(
    tmp_path: Path, variant: Callable[..., Path], until: Until
) -> None:
    pid_file = tmp_path / "pid"
    body = f"import os; open({str(pid_file)!r}, 'w').write(f'{{os.getpid()}}.')\n    while True: pass\n"
    task = variant({"grade.py": "def grade(submission, private):\n    " + body})
    command = [*HARNESS, "run", task, "--agent", "baseline", "--out", tmp_path / "run"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as harness:
        until(lambda: pid_file.is_file() and "." in pid_file.read_text())
        harness.kill()
    grader = Path("/proc", pid_file.read_text().strip("."))
    until(lambda: not grader.exists() or "State:\tZ" in (grader / "status").read_text())
    assert RunFolder(tmp_path / "run").result is None


def test_a_terminal_shows_the_run_live_and_keeps_the_verdict(tmp_path: Path, toy: Path) -> None:
    master, terminal = os.openpty()
    command = [*HARNESS, "run", toy, "--agent", "tuner", "--steps", "8", "--out", tmp_path / "run"]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as harness:
        os.close(terminal)
        screen = b""
        with suppress(OSError):  # reading a closed terminal is an error
            while data := os.read(master, 1 << 16):
                screen += data
    os.close(master)
    assert harness.returncode == 0, screen
    assert b"Execute Script train.py" in screen and b"so far" in screen and b"left" in screen
    assert screen.rpartition(b"so far")[2].count(b"verdict") == 1


def test_a_run_succeeds_in_a_working_folder_that_was_removed(tmp_path: Path, toy: Path) -> None:
    (tmp_path / "gone").mkdir()
    shell = ["sh", "-c", 'cd "$1" && rmdir "$1" && shift && exec "$@"', "sh", tmp_path / "gone"]
    command = [*HARNESS, "run", toy, "--agent", "baseline", "--out", tmp_path / "run"]
    completed = subprocess.run([*shell, *command], capture_output=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert f"show {tmp_path / 'run'}".encode() in completed.stdout


FILLING_AGENT = """
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call

class Filling(Agent):
    def run(self, env):
        for number in range(30):
            content = "".join(str(self.random.random()) for _ in range(1000))
            env.step(Call(action="Write File", args={"file_name": f"f{number}", "content": content}))
"""
RUN_ON_A_SMALL_DISK = """
set -u
mount -t tmpfs -o size=50m tmpfs "$1/disk"
head -c 50600k /dev/zero >"$1/disk/filler"  # leaves 600 kB; only root could enlarge the disk later
"$2" -m mlagentbench run "$3" --agent "$1/filling.py" --sandbox none --out "$1/disk/run" --json \
    >"$1/out1" 2>"$1/err1"
echo $? >"$1/code1"
cp "$1/disk/run/trace.jsonl" "$1/trace1"
rm "$1/disk/filler"
"$2" -m mlagentbench show "$1/disk/run" >"$1/shown"
"$2" -m mlagentbench resume "$1/disk/run" --json >"$1/out2" 2>"$1/err2"
echo $? >"$1/code2"
cp "$1/disk/run/trace.jsonl" "$1/trace2"
"""


def test_a_skeleton_that_does_not_fit_on_the_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    script = 'mount -t tmpfs -o size=8k tmpfs "$1" && "$2" -m mlagentbench new task "$1/mine"; ls "$1"'
    command = [*unshare, "sh", "-c", script, "sh", tmp_path, sys.executable]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert completed.stdout == ""
    assert completed.stderr.startswith(f"mlagentbench: Cannot write {tmp_path}/mine: ")
    assert "No space left on device" in completed.stderr and completed.stderr.count("\n") == 1


def test_a_full_disk_is_a_fault_that_loses_no_step(tmp_path: Path, toy: Path) -> None:
    (tmp_path / "filling.py").write_text(FILLING_AGENT)
    (tmp_path / "disk").mkdir()
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    command = [*unshare, "sh", "-c", RUN_ON_A_SMALL_DISK, "sh", tmp_path, sys.executable, toy]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert completed.returncode == 0, completed.stderr
    assert (tmp_path / "code1").read_text() == "1\n"
    output = (tmp_path / "err1").read_text().splitlines()[-1] + (tmp_path / "out1").read_text()
    assert "No space left on device" in output or "disk full" in output, output
    assert "Traceback" not in output, output
    before = (tmp_path / "trace1").read_bytes()
    assert 5 < before.count(b"\n") < 30 and before.endswith(b"\n")
    assert "f0" in (tmp_path / "shown").read_text()
    assert (tmp_path / "code2").read_text() == "0\n", (tmp_path / "err2").read_text()
    assert json.loads((tmp_path / "out2").read_text())["steps"] == 20  # as many as the toy allows
    assert (tmp_path / "trace2").read_bytes().startswith(before)
