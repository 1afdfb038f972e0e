"""Commands keep working whatever happens to their standard streams."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.runner.folder import RunFolder
from mlagentbench.system.cache import cache_dir

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
PRINTING_AGENT = """
import sys
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call

class Printing(Agent):
    def run(self, env):
        for number in range(3):
            print("x" * 10000, flush=True)
            sys.stderr.write("hm")
            sys.stderr.flush()
            sys.stdout.buffer.write(b"x" * 10000)
            env.step(Call(action="List Files", args={"dir_path": "."}))
        env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(Call(action="Final Answer", args={"final_answer": "x"}))
"""


def outcome(folder: Path) -> tuple[str, str, float | None]:
    result = RunFolder(folder).result
    assert result
    return result.ending, result.note, result.score


@pytest.mark.parametrize("stream", ["a closed pipe", "a full disk"])
def test_an_agent_that_prints_does_not_crash_when_standard_error_cannot_be_written(
    stream: str, tmp_path: Path, toy: Path
) -> None:
    (tmp_path / "printing.py").write_text(PRINTING_AGENT)
    if stream == "a full disk":
        stderr = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, stderr = os.pipe()
        os.close(reader)
    command = [sys.executable, "-m", "mlagentbench", "run", toy, "--agent", tmp_path / "printing.py"]
    completed = subprocess.run(
        [*command, "--out", tmp_path / "run", "--json"], stdout=subprocess.PIPE, stderr=stderr
    )
    os.close(stderr)
    assert outcome(tmp_path / "run") == ("submitted", "", 5.0)
    assert completed.returncode == 0 and json.loads(completed.stdout)["ending"] == "submitted"


ALL_CLOSED = "<&- >&- 2>&-"


@pytest.mark.parametrize(
    ("what", "closed"),
    [("run", "<&-"), ("run", ">&-"), ("run", "2>&-"), ("run", ALL_CLOSED), ("batch", ALL_CLOSED)],
)
def test_commands_work_with_closed_standard_streams(
    what: str, closed: str, tmp_path: Path, toy: Path
) -> None:
    task = [str(toy)] if what == "run" else ["--task", str(toy)]
    command = [
        sys.executable,
        "-m",
        "mlagentbench",
        what,
        *task,
        "--agent",
        "baseline",
        "--out",
        tmp_path / "out",
    ]
    completed = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command], check=False, capture_output=True
    )
    assert completed.returncode == 0, completed.stderr
    folders = [path.parent for path in (tmp_path / "out").glob("**/result.json")]
    assert [outcome(path) for path in folders] == [("submitted", "", 5.0)]


def test_an_ascii_terminal_is_shown_escapes(cli_process: Cli, tmp_path: Path, toy: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    completed = cli_process("run", toy, "--agent", "baseline", "--out", tmp_path / "r\xf6n", env=environment)
    assert completed.returncode == 0 and "toy (open edition) \\xb7 baseline" in completed.stdout, (
        completed.stderr
    )
    completed = cli_process("watch", tmp_path / "r\xf6n", env=environment)
    assert completed.returncode == 0 and "Traceback" not in completed.stderr
    completed = cli_process("verify", tmp_path / "r\xf6n", "--json", env=environment)
    assert completed.returncode == 0 and json.loads(completed.stdout)


def test_a_terminal_width_of_zero_means_the_default_width(
    cli: Cli, cli_process: Cli, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    shown = cli_process("show", toy).stdout
    monkeypatch.setenv("COLUMNS", "80")
    assert shown == cli("show", toy).stdout != ""


def test_output_of_an_agent_is_not_part_of_the_output_of_verify(
    cli: Cli, cli_process: Cli, toy: Path, tmp_path: Path
) -> None:
    (tmp_path / "printing.py").write_text(PRINTING_AGENT)
    run = cli("run", toy, "--agent", tmp_path / "printing.py", "--out", tmp_path / "run")
    assert run.returncode == 0, run.stderr
    completed = cli_process("verify", "--trust-agent", "--json", tmp_path / "run")
    assert completed.returncode == 0 and all(check["holds"] for check in json.loads(completed.stdout))


MOUNT_READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"
"""


def test_a_read_only_cache_is_reported_before_a_run_starts(
    cli: Cli, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "runtimes").symlink_to(cache_dir() / "runtimes")
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(cache))
    run = ["run", str(toy), "--agent", "baseline", "--out"]
    assert cli(*run, tmp_path / "before").returncode == 0
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    read_only = [
        *unshare,
        "sh",
        "-c",
        MOUNT_READ_ONLY,
        "sh",
        str(cache),
        sys.executable,
        "-m",
        "mlagentbench",
    ]
    for command in (
        [*run, str(tmp_path / "run")],
        ["resume", "--from-step", "1", str(tmp_path / "before")],
    ):
        completed = subprocess.run([*read_only, *command], capture_output=True, text=True, check=False)
        assert (
            completed.returncode == 2
            and f"Cannot write to {cache}: Read-only file system" in completed.stderr
        )
    assert not (tmp_path / "run").exists() and outcome(tmp_path / "before") == ("submitted", "", 5.0)
    doctor = subprocess.run([*read_only, "doctor"], capture_output=True, text=True, check=False)
    assert doctor.returncode == 1 and f"FAIL  cache: Cannot write to {cache}" in doctor.stdout, doctor.stderr


def test_ctrl_c_during_imports_prints_no_traceback(cli_process: Cli, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    python_path = os.environ.get("PYTHONPATH", "")
    completed = cli_process("list", env={**os.environ, "PYTHONPATH": f"{tmp_path}:{python_path}"})
    assert (completed.returncode, completed.stderr) == (130, "")


CLOSE_TERMINAL = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
master, terminal = os.openpty()
harness = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stderr=terminal)
os.close(terminal)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
os.close(master)
open(sys.argv[1] + "-gone", "w").close()
sys.exit(harness.wait())
"""
WAITING_AGENT = """
import os
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call

class Waiting(Agent):
    def run(self, env):
        open({mark!r}, "w").close()
        while not os.path.exists({mark!r} + "-gone"):
            pass
        print("printed after the terminal was closed")
        env.step(Call(action="Execute Script", args={{"script_name": "train.py"}}))
        env.step(Call(action="Final Answer", args={{"final_answer": "x"}}))
"""


@pytest.mark.parametrize("what", ["run", "batch"])
def test_closing_the_terminal_stops_only_the_live_display(what: str, tmp_path: Path, toy: Path) -> None:
    mark = str(tmp_path / "started")
    (tmp_path / "waiting.py").write_text(WAITING_AGENT.format(mark=mark))
    task = [str(toy)] if what == "run" else ["--task", str(toy)]
    command = [
        sys.executable,
        "-m",
        "mlagentbench",
        what,
        *task,
        "--agent",
        tmp_path / "waiting.py",
        "--json",
    ]
    shell = [sys.executable, "-c", CLOSE_TERMINAL, mark, *command, "--out", tmp_path / "out"]
    completed = subprocess.run(shell, check=False, stdout=subprocess.PIPE, timeout=60)
    assert completed.returncode == 0 and b'"ending": "submitted"' in completed.stdout
