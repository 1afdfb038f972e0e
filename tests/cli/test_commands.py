"""What the commands print: tables for people, JSON for programs, exit codes for shells."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.start import start_run

RESULT_KEYS = {"task", "edition", "agent", "score", "baseline", "improvement", "success", "valid", "ending"}
RESULT_KEYS |= {"steps", "seconds", "folder"}
Cli = Callable[..., "subprocess.CompletedProcess[str]"]
CallCommand = Callable[..., tuple[int, str, str]]


def test_a_run_prints_json_to_standard_output_and_progress_to_standard_error(
    cli: Cli, toy: Path, tmp_path: Path
) -> None:
    completed = cli("run", toy, "--agent", "baseline", "--seed", 3, "--out", tmp_path / "run", "--json")
    assert completed.returncode == 0, completed.stderr
    result = json.loads(completed.stdout)
    assert result.keys() >= RESULT_KEYS
    assert (result["task"], result["agent"], result["score"], result["steps"]) == ("toy", "baseline", 5.0, 2)
    assert result["folder"] == str(tmp_path / "run") and result["success"] is False
    lines = completed.stderr.splitlines()
    assert len(lines) == 2 and "Execute Script train.py: validation mean absolute error: 5.0" in lines[0]
    assert "\x1b" not in completed.stdout + completed.stderr


def test_a_run_without_a_folder_gets_one_below_runs(cli: Cli, toy: Path, tmp_path: Path) -> None:
    completed = cli("run", toy, "--agent", "nothing", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("toy-nothing-")
    assert f"mlagentbench show runs/{folder.name}" in completed.stdout
    assert "INVALID: submission.csv is missing" in completed.stdout


@pytest.mark.parametrize("what", ["tasks", "agents", "actions", "models", "runtimes"])
def test_every_list_is_a_table_and_json(call: CallCommand, what: str) -> None:
    code, out, _ = call("list", what, "--json")
    rows = json.loads(out)
    assert code == 0 and isinstance(rows, list)
    code, out, _ = call("list", what)
    assert code == 0 and "\x1b" not in out
    assert out == "none\n" if not rows else len(out.splitlines()) == len(rows) + 2
    expected = {"agents": "tuner", "actions": "Execute Script", "runtimes": "tabular"}
    assert expected.get(what, "") in out


def test_a_run_is_shown_step_by_step(call: CallCommand, finished_run: Path) -> None:
    code, out, _ = call("show", finished_run)
    assert code == 0 and "\x1b" not in out
    assert "✓ 2  Execute Script train.py" in out and "validation mean absolute error: 5.0" in out
    assert "GUESS: 9.5 → 95" in out and "SUCCESS" not in out.splitlines()[0]
    assert f"mlagentbench show {finished_run}" in out  # brackets in a path are not markup
    assert max(map(len, out.splitlines())) > 100  # and lines in a pipe are not wrapped
    code, out, _ = call("show", finished_run, "--json")
    shown = json.loads(out)
    assert code == 0 and shown["run"]["agent"] == "tuner"
    assert len(shown["steps"]) == shown["result"]["steps"]


def test_one_step_is_shown_in_full_with_its_changes(
    call: CallCommand, usage_error: Callable[..., str], finished_run: Path
) -> None:
    code, out, _ = call("show", finished_run, "--step", 3)
    assert code == 0 and "GUESS = 95.0" in out and "File train.py written." in out and "\x1b" not in out
    assert json.loads(call("show", finished_run, "--step", 3, "--json")[1])["call"]["action"] == "Write File"
    _, out, _ = call("show", finished_run, "--step", 3, "--diff")
    assert "-GUESS = 9.5\n+GUESS = 95.0\n" in out
    assert json.loads(call("show", finished_run, "--step", 3, "--diff", "--json")[1])["diff"] == out
    assert "no files changed" in call("show", finished_run, "--step", 1, "--diff")[1]
    assert "+++ b/submission.csv" in call("show", finished_run, "--diff")[1]
    for wrong in (0, -1, 99):
        assert "has no step" in usage_error("show", finished_run, "--step", wrong)


def test_a_task_is_shown(call: CallCommand, toy: Path) -> None:
    code, out, _ = call("show", toy)
    assert code == 0 and "starter    5 ± 0.1 (n = 8)" in out and "for each id of questions.csv" in out
    assert json.loads(call("show", toy, "--json")[1])["better"] == "lower"


def test_output_of_an_agent_cannot_control_the_terminal(
    call: CallCommand, play: Callable[..., object], tmp_path: Path, do: Callable[..., str]
) -> None:
    escapes = "\x1b[2J\x1b]0;title\x07[bold]x[/nonsense] :smile:\x07\u202e\u2066"

    def act(env):
        do(env, escapes, **{escapes: escapes})
        do(env, "Write File", file_name="say.py", content=f"print({escapes!r})\n")
        do(env, "Execute Script", script_name="say.py")

    play(act)
    for options in ((), ("--step", 1), ("--step", 3)):
        code, out, _ = call("show", tmp_path / "run", *options)
        assert code == 0 and not set("\x1b\x07\u202e\u2066") & set(out)
        assert "[bold]x[/nonsense] :smile:" in out
    assert call("show", tmp_path / "run", "--step", 2, "--diff")[0] == 0


def test_a_run_is_graded_and_verified_again(call: CallCommand, finished_run: Path) -> None:
    code, out, err = call("grade", finished_run, "--every-step", "--json")
    grades = json.loads(out)
    assert code == 0
    assert [grade["step"] for grade in grades] == list(range(len(RunFolder(finished_run).steps()) + 1))
    assert grades[0]["invalid"] == "submission.csv is missing" and grades[2]["score"] == 5.0 and err == ""
    code, out, _ = call("verify", finished_run)
    assert code == 0 and "FAIL" not in out and out.count("ok  ") > 20
    code, out, _ = call("verify", finished_run, "--json")
    assert code == 0 and all(check["holds"] for check in json.loads(out))


def test_a_false_claim_is_exit_code_one(call: CallCommand, setup: Setup, tmp_path: Path) -> None:
    start_run(setup, "nothing", tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "success": True}))
    code, out, _ = call("verify", tmp_path / "run")
    assert code == 1 and "FAIL  result.json: success: recorded True, recomputed False" in out


def test_verify_takes_a_folder_of_runs_and_ends_with_a_summary(
    call: CallCommand, setup: Setup, tmp_path: Path
) -> None:
    for name in ("good", "false", "damaged"):
        start_run(setup, "nothing", tmp_path / "runs" / name)
    code, out, _ = call("verify", tmp_path / "runs" / "good")
    assert code == 0 and re.fullmatch(r"\d+ checks, all hold", out.splitlines()[-1])
    code, out, _ = call("verify", tmp_path / "runs")
    assert code == 0 and out.splitlines()[-1] == "3 runs: 3 hold, 0 fail, 0 unfinished"
    path = tmp_path / "runs" / "false" / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "success": True}))
    (tmp_path / "runs" / "damaged" / "run.json").write_text("{")
    start_run(setup, "nothing", tmp_path / "runs" / "late")
    (tmp_path / "runs" / "late" / "result.json").unlink()
    code, out, _ = call("verify", tmp_path / "runs")
    assert code == 1 and out.splitlines()[-1] == "4 runs: 1 hold, 2 fail, 1 unfinished"
    assert "FAIL  false\n      result.json: success: recorded True, recomputed False\n" in out
    assert re.search(r"FAIL  damaged\n      .*run\.json is damaged", out) and "unfinished  late" in out
    assert "ok    good\n" in out
    code, out, _ = call("verify", tmp_path / "runs", "--json")
    assert [row["status"] for row in json.loads(out)] == ["FAIL", "FAIL", "ok", "unfinished"]


def test_baseline_prints_the_line_for_task_toml_and_what_success_needs(
    call: CallCommand, toy: Path, variant: Callable[..., Path]
) -> None:
    code, out, _ = call("baseline", toy, "-n", 2)
    lines = out.splitlines()
    assert code == 0 and lines[1] == "For task.toml, below [editions.open.levels]:"
    assert tomllib.loads(lines[2])["starter"].keys() == {"mean", "sd", "n", "hardware"}
    assert lines[3] == "Success needs less than 4.5, beyond noise." and len(lines) == 4
    toml = (toy / "task.toml").read_text()
    hard = toml.replace('"mean absolute error"', '"accuracy"').replace('"lower"', '"higher"')
    grader = "def grade(submission, private):\n    return 0.95\n"
    code, out, _ = call("baseline", variant({"task.toml": hard, "grade.py": grader}), "-n", 2)
    assert code == 0 and "No score can be a success: the starter scores 0.95" in out.splitlines()[-1]


def test_a_fault_is_a_result_and_exit_code_one(
    call: CallCommand, variant: Callable[..., Path], tmp_path: Path
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


def test_a_failing_preparation_prints_the_lines_of_its_own_code(
    call: CallCommand, variant: Callable[..., Path]
) -> None:
    body = "def prepare(edition, raw, public, private, seed):\n    raise ValueError('no rows')\n"
    code, _, err = call("prepare", variant({"prepare.py": body}), "--data-only")
    assert code == 1 and err.endswith("ValueError: no rows (prepare.py, line 2)\n")
    assert "    raise ValueError('no rows')\n" in err and "/mlagentbench/" not in err


def test_prepare_baseline_and_doctor_print_json(call: CallCommand, toy: Path) -> None:
    code, out, _ = call("prepare", toy, "--json")
    assert code == 0 and json.loads(out)[0]["task"] == "toy"
    code, out, err = call("baseline", toy, "-n", 2, "--json")
    assert code == 0 and json.loads(out)["scores"] == [5.0, 5.0] and "run 2 of 2" in err
    code, out, _ = call("doctor", "--json")
    assert {"sandbox bwrap", "sandbox landlock", "limits", "runtime tabular"} <= {
        check["what"] for check in json.loads(out)
    }
    assert "sandbox bwrap" in call("doctor")[1]


def test_doctor_reports_a_missing_optional_part_neither_as_ok_nor_as_a_failure(
    call: CallCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "podman").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    code, out, _ = call("doctor")
    assert re.search("^-     podman: cannot be used", out, re.MULTILINE)
    assert code == ("FAIL" in out)
