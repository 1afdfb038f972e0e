"""Batches that are stopped, watched or out of budget: nothing is lost, and they can be resumed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from batches import WAITING_AGENT, Cli, Until, batch_process, find_processes, run_states, runs_in_slow_script

from mlagentbench.runner.batch.orchestrator import BatchOutcome
from mlagentbench.runner.folder import RunFolder
from mlagentbench.sandbox.processes import list_process_tree


@pytest.mark.slow
def test_ctrl_c_stops_scripts_and_the_batch_can_be_resumed(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, slow_model: str
) -> None:
    go, out = tmp_path / "go", tmp_path / "out"
    waiting_agent = agent("waiting", WAITING_AGENT.format(go=str(go)))
    arguments = [
        "--task",
        toy,
        "--agent",
        waiting_agent,
        "--agent",
        "act",
        "--model",
        slow_model,
        "--jobs",
        2,
    ]
    with batch_process(out, *arguments) as batch:
        until(lambda: len(runs_in_slow_script(out)) == 2)
        assert set(run_states(out).values()) == {"running"}
        scripts = set(list_process_tree(batch.pid)) & set(
            find_processes("./slow.py", "./wait.py")
        )  # other tests may run the same scripts
        assert scripts
        batch.send_signal(signal.SIGINT)
        _, stderr = batch.communicate(timeout=10)
    assert batch.returncode == 130 and "Traceback" not in stderr
    assert "Stopped. All progress is saved; run the same command to continue." in stderr
    assert set(run_states(out).values()) == {"stopped"} and not scripts & set(
        find_processes("./slow.py", "./wait.py")
    )
    assert [len(RunFolder(path.parent).steps()) for path in out.glob("*/run.json")] == [1, 1]
    go.touch()
    with batch_process(out, *arguments, "--json") as batch:
        done, stderr = batch.communicate(timeout=30)
    assert [result["ending"] for result in json.loads(done)] == ["submitted", "submitted"], stderr


STUBBORN = """
class Stubborn(Agent):
    def run(self, env):
        execute(env)
        while True:
            try:
                import time
                time.sleep(1000)
            except BaseException:
                pass
"""


def test_a_second_ctrl_c_exits_at_once_and_leaves_no_fault(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, variant: Callable[..., Path]
) -> None:
    grader = "import time\n\ndef grade(submission, private):\n    print('grading')\n    time.sleep(1000)\n"
    task, out, stubborn = variant({"grade.py": grader}), tmp_path / "out", agent("stubborn", STUBBORN)
    arguments = ["--task", task, "--agent", stubborn, "--agent", "baseline", "--jobs", 2]
    with batch_process(out, *arguments, start_new_session=True) as batch:
        until(lambda: len(list(out.glob("*/trace.jsonl"))) == 2)
        until(
            lambda: set(find_processes("mlagentbench.grading.fork_server")) & set(find_processes(str(task)))
        )
        os.killpg(batch.pid, signal.SIGINT)  # as a terminal does
        assert batch.stderr
        while "Ctrl-C again" not in batch.stderr.readline():
            assert batch.poll() is None
        os.killpg(batch.pid, signal.SIGINT)
        _, stderr = batch.communicate(timeout=10)
    assert batch.returncode == 130 and "Traceback" not in stderr, stderr
    until(lambda: not find_processes(str(task), *map(str, out.iterdir())))
    until(lambda: set(run_states(out).values()) == {"stopped"})
    assert not list(out.glob("*/result*.json"))


@pytest.mark.slow
def test_stop_ends_a_run_or_a_whole_batch_of_another_process(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, cli: Cli
) -> None:
    waiting_agent = agent("waiting", WAITING_AGENT.format(go=str(tmp_path / "go")))
    out = tmp_path / "out"
    arguments = ["--task", toy, "--agent", waiting_agent, "--repetitions", 3, "--jobs", 2]

    with batch_process(out, *arguments) as batch:
        until(lambda: len(runs_in_slow_script(out)) == 2)
        stopped_run = runs_in_slow_script(out)[0]
        stopped = cli("stop", stopped_run)
        assert stopped.returncode == 0 and stopped.stdout == f"stopped: {stopped_run}\n"
        until(
            lambda: len(runs_in_slow_script(out)) == 3
        )  # the third run has started, and the stopped one is not started again
        assert run_states(out)[stopped_run.name] == "stopped" and batch.poll() is None
        assert cli("stop", out).returncode == 0
        _, stderr = batch.communicate(timeout=10)
    assert batch.returncode == 130 and "Stop requested. All progress is saved" in stderr
    assert set(run_states(out).values()) == {"stopped"} and not list(out.glob("**/stop"))
    nothing = cli("stop", out)
    assert nothing.returncode == 2 and "Nothing is running in" in nothing.stderr


def test_a_single_run_can_be_watched_and_stopped_by_another_process(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, cli: Cli
) -> None:
    waiting_agent = agent("waiting", WAITING_AGENT.format(go=str(tmp_path / "go")))
    out = tmp_path / "runs" / "one"
    command = [
        sys.executable,
        "-m",
        "mlagentbench",
        "run",
        str(toy),
        "--agent",
        waiting_agent,
        "--out",
        str(out),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as harness:
        output = out / "outputs" / "step-0002.txt"
        until(lambda: output.is_file() and b"waiting" in output.read_bytes())
        status = json.loads(cli("watch", out, "--once", "--json").stdout)
        assert (
            status["running"] and status["runs"][0]["state"] == "running" and status["runs"][0]["steps"] == 1
        )
        totals = json.loads(cli("watch", out.parent, "--once", "--json").stdout)["totals"]
        assert (totals["runs"], totals["running"], totals["unplanned"]) == (1, 1, 0)
        assert cli("stop", out.parent).stdout == f"stopped: {out}\n"
        _, stderr = harness.communicate(timeout=10)
    assert harness.returncode == 130 and f"stopped; continue with: mlagentbench resume {out}" in stderr
    shown = cli("watch", out)
    assert shown.returncode == 0 and "stopped" in shown.stdout and "Write File wait.py" in shown.stdout


@pytest.mark.slow
def test_watch_shows_the_states_of_a_batch_of_another_process(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, cli: Cli
) -> None:
    waiting_agent = agent("waiting", WAITING_AGENT.format(go=str(tmp_path / "go")))
    crashing = agent("crashing", "class Crashing(Agent):\n    def run(self, env):\n        os._exit(3)\n")
    out = tmp_path / "out"
    (tmp_path / "plan.toml").write_text(
        f"tasks = [{str(toy)!r}]\ntries = 1\n"
        f"agents = ['nothing', {crashing!r}, {waiting_agent!r}, 'baseline']\n"
    )
    with batch_process(out, tmp_path / "plan.toml") as batch:
        until(
            lambda: (
                "running" in (now := list(run_states(out).values())) and now.count("queued") == 1
                if out.is_dir()
                else 0
            )
        )
        status = json.loads(cli("watch", out, "--json", "--once").stdout)
        assert status["running"] and status["totals"]["running"] == 1
        assert [run["state"] for run in status["runs"]] == ["finished", "fault", "running", "queued"]
        assert cli("stop", out).returncode == 0
        batch.communicate(timeout=10)
    shown = cli("watch", out)
    assert (
        shown.returncode == 0
        and "1 of 4 done (0 success, 1 invalid), 1 fault, 1 stopped, 1 queued" in shown.stdout
    )
    missing = cli("watch", tmp_path / "nowhere")
    assert missing.returncode == 2 and "No such folder: " in missing.stderr


COSTLY = """
class Costly(Model):
    def reply(self, prompt):
        return Reply(text="x", input_tokens=10, output_tokens=10, dollars=0.4)

class Asking(Agent):
    def run(self, env):
        env.model_calls.models = {"main": Costly()}
        env.ask([Message(role="user", text="what?")])
        execute(env)
        submit(env)
"""


@pytest.mark.slow
def test_when_the_dollar_budget_is_used_up_no_more_runs_start(
    run_plan: Callable[..., BatchOutcome], agent: Callable[..., str]
) -> None:
    keys = {"agents": [agent("asking", COSTLY)], "repetitions": 3, "budget": {"dollars": 0.5}}
    outcome = run_plan(**keys, jobs=1)
    totals = outcome.status.totals
    assert (totals.done + totals.stopped, totals.queued) == (2, 1) and not outcome.is_complete
    assert outcome.stop_reason == "Budget of $0.5 used up ($0.80)"
    again = run_plan(**keys, jobs=1)
    assert again.results == outcome.results and again.stop_reason == outcome.stop_reason
    more = run_plan(**{**keys, "budget": {"dollars": 9}}, jobs=1)
    assert more.is_complete and round(more.status.totals.dollars, 6) == 1.2


@pytest.mark.slow
def test_a_run_in_progress_when_the_budget_ends_can_be_resumed(
    run_plan: Callable[..., BatchOutcome], agent: Callable[..., str], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    waiting_agent = agent("waiting", WAITING_AGENT.format(go=str(go)))
    keys = {"agents": [waiting_agent], "repetitions": 2, "budget": {"hours": 1e-9}}
    outcome = run_plan(**keys, jobs=1)
    assert "hours of runs used up" in outcome.stop_reason
    assert (outcome.status.totals.stopped, outcome.status.totals.queued) == (1, 1) and not outcome.results
    go.touch()
    assert run_plan(**{**keys, "budget": {}}).is_complete


def test_stop_prints_json(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, cli: Cli
) -> None:
    waiting_agent, out = agent("waiting", WAITING_AGENT.format(go=str(tmp_path / "go"))), tmp_path / "one"
    command = [
        sys.executable,
        "-m",
        "mlagentbench",
        "run",
        str(toy),
        "--agent",
        waiting_agent,
        "--out",
        str(out),
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as harness:
        until(lambda: (out / "outputs" / "step-0002.txt").is_file())
        assert json.loads(cli("stop", out, "--json").stdout) == {"stopped": [str(out)], "still": []}
    assert harness.returncode == 130


def test_a_folder_without_runs_cannot_be_watched(tmp_path: Path, cli: Cli) -> None:
    for given in ((), ("--json",)):
        done = cli("watch", tmp_path, "--once", *given)
        assert (done.returncode, done.stdout) == (
            2,
            "",
        ) and done.stderr == f"mlagentbench: No runs found in {tmp_path}\n"
