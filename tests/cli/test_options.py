"""Global options, earlier names of options, and shell completion."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from run_factory import make_run

import mlagentbench
from mlagentbench.cli.app import RENAMED_OPTIONS, normalize_arguments
from mlagentbench.runner.batch.folder import BatchFolder
from mlagentbench.runner.folder import RunFolder

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
CallCommand = Callable[..., tuple[int, str, str]]
LOG_LINE = re.compile(r"\d\d:\d\d:\d\d (DEBUG|INFO) mlagentbench\.[\w.]+: .+")
COMPLETION = "_MLAGENTBENCH_COMPLETE"


def test_the_version_is_printed(cli: Cli) -> None:
    completed = cli("--version")
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout == f"mlagentbench {mlagentbench.__version__}\n"


@pytest.mark.parametrize("position", [0, 1, 2, -1])
@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_verbose_may_stand_anywhere_and_logs_to_standard_error_only(
    cli: Cli, toy: Path, tmp_path: Path, option: str, position: int
) -> None:
    command = ["run", toy, "--agent", "baseline", "--out", tmp_path / "run", "--json"]
    command.insert(position if position >= 0 else len(command), option)
    completed = cli(*command)
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout)["score"] == 5.0
    logged = [line for line in completed.stderr.splitlines() if LOG_LINE.fullmatch(line)]
    assert any("mlagentbench.environment.environment: step 1: Execute Script" in line for line in logged)


def test_without_verbose_nothing_is_logged(cli: Cli, toy: Path, tmp_path: Path) -> None:
    completed = cli("run", toy, "--agent", "baseline", "--out", tmp_path / "run", "--json")
    assert completed.returncode == 0 and completed.stderr
    assert not any(LOG_LINE.fullmatch(line) for line in completed.stderr.splitlines())


def test_earlier_option_names_are_replaced_but_not_after_two_dashes() -> None:
    assert normalize_arguments(["run", "x", "--ledger"]) == ["run", "x", "--record-access"]
    assert normalize_arguments(["leaderboard", "--without=ab", "-v"]) == ["-v", "leaderboard", "--exclude=ab"]
    assert normalize_arguments(["run", "--set", "a=--ledger"]) == ["run", "--set", "a=--ledger"]
    assert normalize_arguments(["-v", "--verbose"]) == ["-v"]
    assert normalize_arguments(["show", "--", "--ledger", "-v"]) == ["show", "--", "--ledger", "-v"]


def test_the_earlier_option_ledger_records_access(cli: Cli, toy: Path, tmp_path: Path) -> None:
    completed = cli("run", toy, "--agent", "baseline", "--ledger", "--out", tmp_path / "run")
    assert completed.returncode == 0, completed.stderr
    assert RunFolder(tmp_path / "run").spec.record_access
    assert (tmp_path / "run" / "access" / "step-0001.jsonl").stat().st_size > 0


def test_the_earlier_value_here_runs_a_batch_on_this_machine(cli: Cli, toy: Path, tmp_path: Path) -> None:
    command = ["batch", "--task", toy, "--agent", "baseline", "--on", "here", "--ledger"]
    completed = cli(*command, "--out", tmp_path / "batch", "--json")
    assert completed.returncode == 0, completed.stderr
    assert [result["score"] for result in json.loads(completed.stdout)] == [5.0]
    assert BatchFolder(tmp_path / "batch").read_record().plan.record_access


def test_the_earlier_options_without_and_unfinished_select_the_runs_of_a_leaderboard(
    call: CallCommand, usage_error: Callable[..., str], tmp_path: Path
) -> None:
    make_run(tmp_path / "one", 0.5)
    make_run(tmp_path / "unfinished", ending=None)
    make_run(tmp_path / "paper", 0.5, edition="paper")
    assert "paper" in usage_error("leaderboard", tmp_path, "--unfinished")
    assert "unfinished" in usage_error("leaderboard", tmp_path, "--without", "paper")
    new = call("leaderboard", tmp_path, "--exclude", "paper", "--skip-unfinished", "--json")
    assert new[0] == 0 and json.loads(new[1])
    assert call("leaderboard", tmp_path, "--without", "paper", "--unfinished", "--json") == new
    assert call("leaderboard", tmp_path, "--without=paper", "--unfinished", "--json") == new


@pytest.mark.parametrize("command", ["run", "batch", "leaderboard"])
def test_help_shows_current_option_names_only(call: CallCommand, command: str) -> None:
    code, out, _ = call(command, "--help")
    options = set(re.findall(r"--[a-z-]+", out))
    assert code == 0 and "--json" in options
    assert not options & RENAMED_OPTIONS.keys() and not re.search(r"\bhere\b", out.partition("--on")[2][:60])
    current = {"run": {"--record-access"}, "batch": {"--record-access"}}
    assert options >= current.get(command, {"--exclude", "--skip-unfinished"})


@pytest.fixture
def complete(tmp_path: Path) -> Callable[[str], list[str]]:
    """Completes a command line as bash does, which calls the installed program."""
    program = Path(sys.executable).with_name("mlagentbench")
    if not program.is_file():
        pytest.skip("the program is not installed")

    def ask(line: str) -> list[str]:
        variables = {COMPLETION: "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        completed = subprocess.run(
            [program], env={**os.environ, **variables}, capture_output=True, text=True, check=True
        )
        assert completed.stderr == ""
        return completed.stdout.split()

    return ask


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mlagentbench run hou", ["house-price"]),
        ("mlagentbench prepare im", ["imdb"]),
        ("mlagentbench run imdb --agent re", ["react", "reference", "research"]),
        ("mlagentbench run --record", ["--record-access"]),
        ("mlagentbench leader", ["leaderboard"]),
        ("mlagentbench run no-such-", []),
    ],
)
def test_the_shell_completes_tasks_agents_options_and_commands(
    complete: Callable[[str], list[str]], line: str, expected: list[str]
) -> None:
    assert complete(line) == expected


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_the_completion_script_works_in_bash() -> None:
    folder = Path(sys.executable).parent
    script = (
        f'eval "$({COMPLETION}=source_bash mlagentbench)"; COMP_WORDS=(mlagentbench run hou); COMP_CWORD=2\n'
        "_mlagentbench_completion mlagentbench; echo ${COMPREPLY[@]}"
    )
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    completed = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert completed.stdout == "house-price\n"
