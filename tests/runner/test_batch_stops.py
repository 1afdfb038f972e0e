"""Batches that are stopped, watched, or out of money: nothing is lost, and the same command goes on."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from batches import PATIENT, Cli, Until, process, processes, states, waiting

from mlagentbench.runner.batch.orchestrator import BatchOutcome
from mlagentbench.runner.folder import RunFolder
from mlagentbench.sandbox.processes import list_process_tree


def test_ctrl_c_stops_scripts_and_keeps_everything_and_the_same_command_goes_on(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, slow: str
) -> None:
    go, out = tmp_path / "go", tmp_path / "out"
    patient = agent("patient", PATIENT.format(go=str(go)))
    words = ["--task", toy, "--agent", patient, "--agent", "act", "--model", slow, "--jobs", 2]
    with process(out, *words) as batch:
        until(lambda: len(waiting(out)) == 2)
        assert set(states(out).values()) == {"running"}
        scripts = set(list_process_tree(batch.pid)) & set(
            processes("./slow.py", "./wait.py")
        )  # other tests have some, too
        assert scripts
        batch.send_signal(signal.SIGINT)
        _, complaints = batch.communicate(timeout=10)
    assert batch.returncode == 130 and "Traceback" not in complaints
    assert "Stopped. All progress is saved; run the same command to continue." in complaints
    assert set(states(out).values()) == {"stopped"} and not scripts & set(processes("./slow.py", "./wait.py"))
    assert [len(RunFolder(path.parent).steps()) for path in out.glob("*/run.json")] == [1, 1]
    go.touch()
    with process(out, *words, "--json") as batch:
        done, complaints = batch.communicate(timeout=30)
    assert [result["ending"] for result in json.loads(done)] == ["submitted", "submitted"], complaints


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


def test_a_second_ctrl_c_leaves_what_does_not_stop_and_even_that_is_no_fault(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, variant: Callable[..., Path]
) -> None:
    grader = "import time\n\ndef grade(submission, private):\n    print('grading')\n    time.sleep(1000)\n"
    task, out, stubborn = variant({"grade.py": grader}), tmp_path / "out", agent("stubborn", STUBBORN)
    words = ["--task", task, "--agent", stubborn, "--agent", "baseline", "--jobs", 2]
    with process(out, *words, start_new_session=True) as batch:
        until(lambda: len(list(out.glob("*/trace.jsonl"))) == 2)
        until(lambda: set(processes("mlagentbench.grading.grader_process")) & set(processes(str(task))))
        os.killpg(batch.pid, signal.SIGINT)  # as a terminal does it
        assert batch.stderr
        while "Ctrl-C again" not in batch.stderr.readline():
            assert batch.poll() is None
        os.killpg(batch.pid, signal.SIGINT)
        _, complaints = batch.communicate(timeout=10)
    assert batch.returncode == 130 and "Traceback" not in complaints, complaints
    until(lambda: not processes(str(task), *map(str, out.iterdir())))
    until(lambda: set(states(out).values()) == {"stopped"})
    assert not list(out.glob("*/result*.json"))


def test_stop_ends_a_run_or_a_whole_batch_of_another_process(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, cli: Cli
) -> None:
    patient = agent("patient", PATIENT.format(go=str(tmp_path / "go")))
    out = tmp_path / "out"
    words = ["--task", toy, "--agent", patient, "--repetitions", 3, "--jobs", 2]

    with process(out, *words) as batch:
        until(lambda: len(waiting(out)) == 2)
        one = waiting(out)[0]
        stopped = cli("stop", one)
        assert stopped.returncode == 0 and stopped.stdout == f"stopped: {one}\n"
        until(
            lambda: len(waiting(out)) == 3
        )  # the next one has taken its place, and this one is not begun again
        assert states(out)[one.name] == "stopped" and batch.poll() is None
        assert cli("stop", out).returncode == 0
        _, complaints = batch.communicate(timeout=10)
    assert batch.returncode == 130 and "Stop requested. All progress is saved" in complaints
    assert set(states(out).values()) == {"stopped"} and not list(out.glob("**/stop"))
    nothing = cli("stop", out)
    assert nothing.returncode == 2 and "Nothing is running in" in nothing.stderr


def test_a_single_run_can_be_stopped_and_watched_from_outside(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, cli: Cli
) -> None:
    patient = agent("patient", PATIENT.format(go=str(tmp_path / "go")))
    out = tmp_path / "runs" / "one"
    command = [sys.executable, "-m", "mlagentbench", "run", str(toy), "--agent", patient, "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as harness:
        output = out / "outputs" / "step-0002.txt"
        until(lambda: output.is_file() and b"waiting" in output.read_bytes())
        look = json.loads(cli("watch", out, "--once", "--json").stdout)
        assert look["running"] and look["runs"][0]["state"] == "running" and look["runs"][0]["steps"] == 1
        totals = json.loads(cli("watch", out.parent, "--once", "--json").stdout)["totals"]
        assert (totals["runs"], totals["running"], totals["unplanned"]) == (1, 1, 0)
        assert cli("stop", out.parent).stdout == f"stopped: {out}\n"
        _, complaints = harness.communicate(timeout=10)
    assert harness.returncode == 130 and f"stopped; go on with: mlagentbench resume {out}" in complaints
    shown = cli("watch", out)
    assert shown.returncode == 0 and "stopped" in shown.stdout and "Write File wait.py" in shown.stdout


def test_watch_tells_the_states_of_a_batch_of_another_process(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, cli: Cli
) -> None:
    patient = agent("patient", PATIENT.format(go=str(tmp_path / "go")))
    deadly = agent("deadly", "class Deadly(Agent):\n    def run(self, env):\n        os._exit(3)\n")
    out = tmp_path / "out"
    (tmp_path / "plan.toml").write_text(
        f"tasks = [{str(toy)!r}]\nagents = ['nothing', {deadly!r}, {patient!r}, 'baseline']\ntries = 1\n"
    )
    with process(out, tmp_path / "plan.toml") as batch:
        until(
            lambda: (
                "running" in (now := list(states(out).values())) and now.count("queued") == 1
                if out.is_dir()
                else 0
            )
        )
        told = json.loads(cli("watch", out, "--json", "--once").stdout)
        assert told["running"] and told["totals"]["running"] == 1
        assert [each["state"] for each in told["runs"]] == ["finished", "fault", "running", "queued"]
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


def test_a_budget_in_money_that_is_used_up_begins_nothing_more(
    carry_out: Callable[..., BatchOutcome], agent: Callable[..., str]
) -> None:
    keys = {"agents": [agent("asking", COSTLY)], "repetitions": 3, "budget": {"dollars": 0.5}}
    ended = carry_out(**keys, jobs=1)
    totals = ended.status.totals
    assert (totals.done + totals.stopped, totals.queued) == (2, 1) and not ended.is_complete
    assert ended.stop_reason == "Budget of $0.5 used up ($0.80)"
    again = carry_out(**keys, jobs=1)
    assert again.results == ended.results and again.stop_reason == ended.stop_reason
    more = carry_out(**{**keys, "budget": {"dollars": 9}}, jobs=1)
    assert more.is_complete and round(more.status.totals.dollars, 6) == 1.2


def test_a_budget_that_ends_while_a_run_goes_on_leaves_it_to_be_resumed(
    carry_out: Callable[..., BatchOutcome], agent: Callable[..., str], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    patient = agent("patient", PATIENT.format(go=str(go)))
    keys = {"agents": [patient], "repetitions": 2, "budget": {"hours": 1e-9}}
    ended = carry_out(**keys, jobs=1)
    assert "hours of runs used up" in ended.stop_reason
    assert (ended.status.totals.stopped, ended.status.totals.queued) == (1, 1) and not ended.results
    go.touch()
    assert carry_out(**{**keys, "budget": {}}).is_complete


def test_what_stop_did_is_told_to_programs_too(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, cli: Cli
) -> None:
    patient, out = agent("patient", PATIENT.format(go=str(tmp_path / "go"))), tmp_path / "one"
    command = [sys.executable, "-m", "mlagentbench", "run", str(toy), "--agent", patient, "--out", str(out)]
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
        ) and done.stderr == f"mlagentbench: no run lies in {tmp_path}\n"
