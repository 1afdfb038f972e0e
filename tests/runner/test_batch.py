"""Batches: every job runs once, in order, with progress; which changes of a plan are allowed on resume."""

import ast
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from batches import WAITING_AGENT, Cli, Until, batch_process, create_batch, make_plan, quiet

import mlagentbench
from mlagentbench.errors import UsageError
from mlagentbench.runner.batch.batch_status import BatchStatus
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.orchestrator import BatchOutcome, assign_gpus_to_slots, run_batch
from mlagentbench.runner.batch.plan import Budget
from mlagentbench.runner.batch.run_status import RunStatus
from mlagentbench.runner.batch.scheduler import Scheduler
from mlagentbench.terminal.progress import ProgressLines


def test_every_job_runs_once_and_a_finished_batch_is_not_changed(
    run_plan: Callable[..., BatchOutcome], tmp_path: Path, scripted_model: Callable[..., str]
) -> None:
    keys = {"agents": ["baseline", "nothing", "act"], "models": [scripted_model(2)], "repetitions": 2}
    seen: list[BatchStatus] = []
    outcome = run_plan(**keys, show=seen.append)
    assert outcome.is_complete and not outcome.stop_reason and not outcome.errors
    totals = outcome.status.totals
    assert (totals.runs, totals.done, totals.invalid, totals.fault, totals.queued) == (6, 6, 2, 0, 0)
    assert [(result.agent, result.seed, result.score) for result in outcome.results] == [
        ("baseline", 0, 5.0), ("nothing", 0, None), ("act", 0, 5.0),
        ("baseline", 1, 5.0), ("nothing", 1, None), ("act", 1, 5.0),
    ]  # fmt: skip
    assert seen[0].totals.queued == 6 and seen[-1].totals.done == 6 and totals.tokens > 0
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/*/*.json*")}
    again = run_plan(**keys)
    assert again.results == outcome.results
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/*/*.json*")} == written
    assert run_batch(tmp_path / "out", None, [""], quiet, quiet).results == outcome.results


def test_two_batches_on_one_folder_are_refused(run_plan: Callable[..., BatchOutcome], tmp_path: Path) -> None:
    refused: list[str] = []

    def start_another(status: BatchStatus) -> None:
        if not refused:
            with pytest.raises(UsageError, match="Another process is running the batch in") as caught:
                run_batch(tmp_path / "out", None, [""], quiet, quiet)
            refused.append(str(caught.value))

    assert run_plan(show=start_another).is_complete and refused
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    with pytest.raises(UsageError, match="is not empty and holds no batch"):
        run_plan(out="full")
    with pytest.raises(UsageError, match="holds no batch to resume"):
        run_batch(tmp_path / "new", None, [""], quiet, quiet)


@pytest.mark.slow
def test_after_a_change_of_the_plan_only_new_combinations_run_and_old_runs_stay(
    run_plan: Callable[..., BatchOutcome], tmp_path: Path
) -> None:
    first = run_plan(agents=["baseline", "nothing"])
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/*/result.json")}
    second = run_plan(agents=["baseline"], repetitions=2)
    assert second.is_complete and [result.seed for result in second.results] == [0, 1]
    assert second.results[0] == first.results[0]
    assert {path: path.stat().st_mtime_ns for path in written} == written
    old = [run for run in second.status.runs if not run.planned]
    assert [(run.agent, run.state) for run in old] == [("nothing", "finished")]
    assert second.status.totals.unplanned == 1
    assert run_plan(agents=["baseline", "nothing"], repetitions=2).is_complete
    assert len(list(tmp_path.glob("out/*/run.json"))) == 4


@pytest.mark.parametrize(
    ("file", "what"),
    [("description.md", "task"), ("grade.py", "task and grader"), ("prepare.py", "task and data")],
)
def test_a_batch_is_not_resumed_after_a_change_of_its_task_grader_or_data(
    run_plan: Callable[..., BatchOutcome], variant: Callable[..., Path], tmp_path: Path, file: str, what: str
) -> None:
    task = variant({})
    assert run_plan(tasks=[str(task)]).is_complete
    before = (tmp_path / "out" / "batch.json").read_bytes()
    text = (task / file).read_text()
    (task / file).write_text(text.replace("range(10)", "range(11)") + "\n# something else\n")
    with pytest.raises(UsageError, match=rf"cannot be resumed: the {what} of .* changed since it started"):
        run_plan(tasks=[str(task)], repetitions=2)
    assert (tmp_path / "out" / "batch.json").read_bytes() == before
    with pytest.raises(UsageError, match=r"the task .* changed since it started"):
        run_plan(tasks=[str(task)])  # every job is finished, but the results are not of this task
    shutil.rmtree(task)
    assert run_batch(tmp_path / "out", None, [""], quiet, quiet).is_complete  # its results are still there


def test_a_batch_is_not_resumed_after_a_change_of_an_agent_file(
    run_plan: Callable[..., BatchOutcome], agent: Callable[..., str]
) -> None:
    path = agent("idle", "class Idle(Agent):\n    def run(self, env):\n        submit(env)\n")
    assert run_plan(agents=[path]).is_complete
    agent("idle", "class Idle(Agent):\n    def run(self, env):\n        execute(env)\n")
    with pytest.raises(UsageError, match=r"the agent .*idle\.py changed since it started"):
        run_plan(agents=[path], repetitions=2)
    with pytest.raises(UsageError, match=r"the agent .*idle\.py changed since it started"):
        run_plan(agents=[path])  # all of its runs are finished, with the old file


class FakeRunner:
    """Records which jobs it gets, and writes a result for each without running it."""

    def __init__(self, out: Path, result: str) -> None:
        self.out, self.result = out, result
        self.jobs: list[tuple[str, str]] = []
        self.max_parallel, self._parallel, self._lock = 0, 0, threading.Lock()
        self.together = threading.Barrier(2, timeout=10)

    def run(self, job: Job, gpu: str) -> Path:
        with self._lock:
            self._parallel += 1
            self.max_parallel = max(self.max_parallel, self._parallel)
            self.jobs.append((job.name, gpu))
        self.together.wait()
        (self.out / job.name).mkdir()
        (self.out / job.name / "run.json").touch()
        (self.out / job.name / "result.json").write_text(self.result)
        with self._lock:
            self._parallel -= 1
        return self.out / job.name

    def stop(self) -> None:
        pass


def test_each_slot_has_its_gpu_and_no_more_jobs_run_at_a_time_than_there_are_slots(
    run_plan: Callable[..., BatchOutcome], tmp_path: Path, toy: Path
) -> None:
    result = run_plan().results[0].model_dump_json(exclude={"folder"})
    plan = make_plan(tasks=[str(toy)], agents=["nothing"], repetitions=20)
    follower, jobs = create_batch(tmp_path / "other", plan)
    runner = FakeRunner(tmp_path / "other", result)
    batch = Scheduler(follower, plan, runner, ["0", "1"], quiet, quiet)
    for job in jobs:
        batch.add(job)
    batch.run()
    assert batch.status.totals.done == 20 and runner.max_parallel == 2
    assert [name for name, _ in runner.jobs[:2]] == [job.name for job in jobs[:2]]
    assert {gpu for _, gpu in runner.jobs} == {"0", "1"}
    assert assign_gpus_to_slots(3, "") == ["", "", ""] and assign_gpus_to_slots(None, "") == [""]
    with pytest.raises(UsageError, match="No such GPU: '97'"):
        assign_gpus_to_slots(2, "97")


def test_without_a_terminal_a_stopped_run_is_reported_and_one_about_to_start_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = ProgressLines()
    for state, steps in (("queued", 0), ("stopped", 0), ("running", 3), ("stopped", 3), ("stopped", 3)):
        status = RunStatus(name="run", task="toy", agent="act", state=state, steps=steps)
        lines.show(BatchStatus(running=True, budget=Budget(), runs=(status,)))
    assert capsys.readouterr().err.splitlines()[1:] == ["run: stopped after 3 steps"]


def test_the_index_is_rebuilt_when_it_is_missing_damaged_or_stale(
    run_plan: Callable[..., BatchOutcome], tmp_path: Path
) -> None:
    outcome = run_plan(repetitions=2)
    index = tmp_path / "out" / "index.sqlite"

    def rows() -> list[Any]:
        with sqlite3.connect(index) as database:
            selected = database.execute("SELECT name, score, ending FROM results ORDER BY seed").fetchall()
        database.close()
        return selected

    expected = rows()
    assert [row[1:] for row in expected] == [(5.0, "submitted")] * 2
    index.unlink()
    assert run_plan(repetitions=2).results == outcome.results and rows() == expected
    index.write_bytes(b"not a database, but long enough to be one" * 100)
    assert run_plan(repetitions=2).results == outcome.results and rows() == expected
    with sqlite3.connect(index) as database:
        database.execute("UPDATE results SET record = 'nonsense', score = 1")
    database.close()
    assert run_plan(repetitions=2).results == outcome.results
    path = Path(outcome.results[0].folder) / "result.json"
    path.write_text(path.read_text().replace('"score": 5.0', '"score": 4.0'))
    assert run_plan(repetitions=2).results[0].score == 4.0 and rows()[0][1] == 4.0


@pytest.mark.slow
def test_a_batch_can_be_resumed_after_a_reboot_resets_the_monotonic_clock(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, cli: Cli
) -> None:
    waiting_agent = agent("waiting", WAITING_AGENT.format(go=str(tmp_path / "go")))
    out = tmp_path / "out"
    arguments = ["--task", toy, "--agent", waiting_agent, "--repetitions", 2, "--hours", 0.1]
    with batch_process(out, *arguments) as batch:
        until(lambda: list(out.glob("*/outputs/step-0002.txt")))
        batch.kill()
    (tmp_path / "go").touch()
    command = [sys.executable, "-m", "mlagentbench", "batch", "--out", *map(str, (out, *arguments, "--json"))]
    later = ["unshare", "--time", "--fork", "--monotonic", "9000000", "--boottime", "9000000"]
    later = later if os.geteuid() == 0 else [*later, "-r"]
    done = subprocess.run([*later, *command], capture_output=True, text=True, check=False, timeout=60)
    if "unshare failed" in done.stderr:
        pytest.skip("this kernel has no time namespaces")
    assert done.returncode == 0, done.stderr
    assert all(
        result["ending"] == "submitted" and result["seconds"] < 60 for result in json.loads(done.stdout)
    )


def test_no_decision_depends_on_the_wall_clock() -> None:
    source = Path(mlagentbench.__file__).parent
    files = [
        *source.glob("runner/batch/**/*.py"),
        *source.glob("environment/*.py"),
        source / "system" / "stop_token.py",
        source / "system" / "lock.py",
    ]
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                assert ast.unparse(node) not in ("time.time", "datetime.now", "datetime.datetime"), path


def test_in_a_terminal_running_jobs_are_displayed_live(tmp_path: Path, toy: Path) -> None:
    ours, theirs = os.openpty()
    terminal = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    arguments = ("--task", toy, "--agent", "tuner", "--agent", "baseline", "--steps", 8)
    with batch_process(tmp_path / "out", *arguments, stdout=theirs, stderr=theirs, env=terminal) as batch:
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # reading from a closed terminal is an error
            while data := os.read(ours, 1 << 16):
                seen += data
        batch.wait()
    os.close(ours)
    assert batch.returncode == 0, seen
    assert b"queued" in seen and b"2 of 2 done (" in seen.rpartition(b"queued")[2]


def test_without_a_terminal_every_finished_run_is_a_line_and_results_are_json(
    cli: Cli, toy: Path, tmp_path: Path
) -> None:
    done = cli(
        "batch", "--task", toy, "--agent", "nothing", "--repetitions", 2, "--out", tmp_path / "out", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert [result["seed"] for result in json.loads(done.stdout)] == [0, 1]
    lines = done.stderr.splitlines()
    assert lines[0] == "0 of 2 done (0 success, 0 invalid), 2 queued"
    assert sum("invalid: submission.csv is missing (submitted after 1 steps" in line for line in lines) == 2
    assert lines[-2] == "2 of 2 done (0 success, 2 invalid)"
    out = tmp_path / "out"
    assert lines[-1] == f"write a report with: mlagentbench report {out} -o {out}-report"
    for arguments, message in {
        ("batch",): "Pass --out FOLDER",
        (
            "batch",
            "--out",
            tmp_path / "x",
            "--task",
            "atlantis",
            "--agent",
            "nothing",
        ): "No such task: 'atlantis'",
        ("batch", "--out", tmp_path / "x", "--task", "imdb"): "agents: field required",
        ("batch", tmp_path / "nowhere.toml"): "Cannot read",
    }.items():
        refused = cli(*arguments)
        assert refused.returncode == 2 and message in refused.stderr and refused.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()
