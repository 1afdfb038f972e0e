"""The command line goes on whatever becomes of its standard streams."""

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
TALKER = """
import sys
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call

class Talker(Agent):
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


def ended(folder: Path) -> tuple[str, str, float | None]:
    result = RunFolder(folder).result
    assert result
    return result.ending, result.note, result.score


@pytest.mark.parametrize("deaf", ["a reader that went away", "a full disk"])
def test_an_agent_that_talks_does_not_crash_because_nobody_can_hear_it(
    deaf: str, tmp_path: Path, toy: Path
) -> None:
    (tmp_path / "talker.py").write_text(TALKER)
    if deaf == "a full disk":
        stderr = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, stderr = os.pipe()
        os.close(reader)
    command = [sys.executable, "-m", "mlagentbench", "run", toy, "--agent", tmp_path / "talker.py"]
    done = subprocess.run(
        [*command, "--out", tmp_path / "run", "--json"], stdout=subprocess.PIPE, stderr=stderr
    )
    os.close(stderr)
    assert ended(tmp_path / "run") == ("submitted", "", 5.0)
    assert done.returncode == 0 and json.loads(done.stdout)["ending"] == "submitted"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("what", ["run", "batch"])
def test_a_closed_stream_is_like_one_that_nobody_reads(
    closed: str, what: str, tmp_path: Path, toy: Path
) -> None:
    words = [str(toy)] if what == "run" else ["--task", str(toy)]
    command = [
        sys.executable,
        "-m",
        "mlagentbench",
        what,
        *words,
        "--agent",
        "baseline",
        "--out",
        tmp_path / "out",
    ]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command], check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    found = [path.parent for path in (tmp_path / "out").glob("**/result.json")]
    assert [ended(path) for path in found] == [("submitted", "", 5.0)]


def test_a_terminal_that_knows_few_letters_is_shown_escapes(cli: Cli, tmp_path: Path, toy: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = cli("run", toy, "--agent", "baseline", "--out", tmp_path / "r\xf6n", env=environment)
    assert done.returncode == 0 and "toy (open edition) \\xb7 baseline" in done.stdout, done.stderr
    told = cli("watch", tmp_path / "r\xf6n", env=environment)
    assert told.returncode == 0 and "Traceback" not in told.stderr
    told = cli("verify", tmp_path / "r\xf6n", "--json", env=environment)
    assert told.returncode == 0 and json.loads(told.stdout)


def test_a_terminal_that_does_not_know_its_width_is_written_to(cli: Cli, toy: Path) -> None:
    shown = [cli("show", toy, env={**os.environ, "COLUMNS": width}).stdout for width in ("0", "80")]
    assert shown[0] == shown[1] != ""


def test_what_an_agent_prints_is_no_part_of_what_verify_says(cli: Cli, toy: Path, tmp_path: Path) -> None:
    (tmp_path / "talker.py").write_text(TALKER)
    assert cli("run", toy, "--agent", tmp_path / "talker.py", "--out", tmp_path / "run").returncode == 0
    done = cli("verify", "--trust-agent", "--json", tmp_path / "run")
    assert done.returncode == 0 and all(check["holds"] for check in json.loads(done.stdout))


READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"
"""


def test_a_cache_that_can_only_be_read_is_found_before_anything_begins(
    cli: Cli, toy: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "runtimes").symlink_to(cache_dir() / "runtimes")
    environment = {**os.environ, "MLAGENTBENCH_HOME": str(cache)}
    words = ["run", str(toy), "--agent", "baseline", "--out"]
    assert cli(*words, tmp_path / "before", env=environment).returncode == 0
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    read_only = [*unshare, "sh", "-c", READ_ONLY, "sh", str(cache), sys.executable, "-m", "mlagentbench"]
    for command in (
        [*words, str(tmp_path / "run")],
        ["resume", "--from-step", "1", str(tmp_path / "before")],
    ):
        done = subprocess.run(
            [*read_only, *command], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 2 and f"Cannot write to {cache}: Read-only file system" in done.stderr
    assert not (tmp_path / "run").exists() and ended(tmp_path / "before") == ("submitted", "", 5.0)
    found = subprocess.run(
        [*read_only, "doctor"], capture_output=True, text=True, check=False, env=environment
    )
    assert found.returncode == 1 and f"FAIL  cache: Cannot write to {cache}" in found.stdout, found.stderr


def test_ctrl_c_while_it_still_loads_is_no_traceback(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    before = os.environ.get("PYTHONPATH", "")
    done = cli("list", env={**os.environ, "PYTHONPATH": f"{tmp_path}:{before}"})
    assert (done.returncode, done.stderr) == (130, "")


TERMINAL = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
ours, theirs = os.openpty()
harness = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stderr=theirs)
os.close(theirs)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
os.close(ours)
open(sys.argv[1] + "-gone", "w").close()
sys.exit(harness.wait())
"""
WAITING = """
import os
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call

class Waiting(Agent):
    def run(self, env):
        open({mark!r}, "w").close()
        while not os.path.exists({mark!r} + "-gone"):
            pass
        print("is anybody there?")
        env.step(Call(action="Execute Script", args={{"script_name": "train.py"}}))
        env.step(Call(action="Final Answer", args={{"final_answer": "x"}}))
"""


@pytest.mark.parametrize("what", ["run", "batch"])
def test_a_terminal_that_is_closed_takes_nothing_along_but_the_drawing(
    what: str, tmp_path: Path, toy: Path
) -> None:
    mark = str(tmp_path / "begun")
    (tmp_path / "waiting.py").write_text(WAITING.format(mark=mark))
    words = [str(toy)] if what == "run" else ["--task", str(toy)]
    command = [
        sys.executable,
        "-m",
        "mlagentbench",
        what,
        *words,
        "--agent",
        tmp_path / "waiting.py",
        "--json",
    ]
    shell = [sys.executable, "-c", TERMINAL, mark, *command, "--out", tmp_path / "out"]
    done = subprocess.run(shell, check=False, stdout=subprocess.PIPE, timeout=60)
    assert done.returncode == 0 and b'"ending": "submitted"' in done.stdout
