"""A batch: every job is run once, in order, and is told of; a plan may change as far as results do not suffer."""

import ast
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from batches import PATIENT, Cli, Until, plan_of, process, quiet, surveyed

import mlagentbench
from mlagentbench.errors import UsageError
from mlagentbench.runner.batch.batch_status import BatchStatus
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.orchestrator import BatchOutcome, assign_gpus_to_slots, run_batch
from mlagentbench.runner.batch.plan import Budget
from mlagentbench.runner.batch.run_status import RunStatus
from mlagentbench.runner.batch.scheduler import Scheduler
from mlagentbench.terminal.progress import ProgressLines


def test_every_job_is_run_once_and_a_finished_batch_is_left_alone(
    carry_out: Callable[..., BatchOutcome], tmp_path: Path, script: Callable[..., str]
) -> None:
    keys = {"agents": ["baseline", "nothing", "act"], "models": [script(2)], "repetitions": 2}
    seen: list[BatchStatus] = []
    ended = carry_out(**keys, show=seen.append)
    assert ended.is_complete and not ended.stop_reason and not ended.errors
    totals = ended.status.totals
    assert (totals.runs, totals.done, totals.invalid, totals.fault, totals.queued) == (6, 6, 2, 0, 0)
    assert [(result.agent, result.seed, result.score) for result in ended.results] == [
        ("baseline", 0, 5.0), ("nothing", 0, None), ("act", 0, 5.0),
        ("baseline", 1, 5.0), ("nothing", 1, None), ("act", 1, 5.0),
    ]  # fmt: skip
    assert seen[0].totals.queued == 6 and seen[-1].totals.done == 6 and totals.tokens > 0
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/*/*.json*")}
    again = carry_out(**keys)
    assert again.results == ended.results
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/*/*.json*")} == written
    assert run_batch(tmp_path / "out", None, [""], quiet, quiet).results == ended.results


def test_two_batches_on_one_folder_are_refused(
    carry_out: Callable[..., BatchOutcome], tmp_path: Path
) -> None:
    refused: list[str] = []

    def intrude(view: BatchStatus) -> None:
        if not refused:
            with pytest.raises(UsageError, match="Another process is running the batch in") as caught:
                run_batch(tmp_path / "out", None, [""], quiet, quiet)
            refused.append(str(caught.value))

    assert carry_out(show=intrude).is_complete and refused
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    with pytest.raises(UsageError, match="is not empty and holds no batch"):
        carry_out(out="full")
    with pytest.raises(UsageError, match="holds no batch to resume"):
        run_batch(tmp_path / "new", None, [""], quiet, quiet)


def test_of_a_plan_that_changed_only_new_combinations_run_and_old_ones_stay(
    carry_out: Callable[..., BatchOutcome], tmp_path: Path
) -> None:
    first = carry_out(agents=["baseline", "nothing"])
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/*/result.json")}
    second = carry_out(agents=["baseline"], repetitions=2)
    assert second.is_complete and [result.seed for result in second.results] == [0, 1]
    assert second.results[0] == first.results[0]
    assert {path: path.stat().st_mtime_ns for path in written} == written
    old = [each for each in second.status.runs if not each.planned]
    assert [(each.agent, each.state) for each in old] == [("nothing", "finished")]
    assert second.status.totals.unplanned == 1
    assert carry_out(agents=["baseline", "nothing"], repetitions=2).is_complete
    assert len(list(tmp_path.glob("out/*/run.json"))) == 4


@pytest.mark.parametrize(
    ("file", "what"),
    [("description.md", "task"), ("grade.py", "task and grader"), ("prepare.py", "task and data")],
)
def test_a_change_of_what_results_depend_on_is_refused(
    carry_out: Callable[..., BatchOutcome], variant: Callable[..., Path], tmp_path: Path, file: str, what: str
) -> None:
    task = variant({})
    assert carry_out(tasks=[str(task)]).is_complete
    before = (tmp_path / "out" / "batch.json").read_bytes()
    text = (task / file).read_text()
    (task / file).write_text(text.replace("range(10)", "range(11)") + "\n# something else\n")
    with pytest.raises(UsageError, match=rf"cannot be resumed: the {what} of .* changed since it started"):
        carry_out(tasks=[str(task)], repetitions=2)
    assert (tmp_path / "out" / "batch.json").read_bytes() == before
    assert carry_out(tasks=[str(task)]).is_complete  # all of it is done: nothing depends on the change


def test_a_change_of_an_agent_file_is_refused(
    carry_out: Callable[..., BatchOutcome], agent: Callable[..., str]
) -> None:
    path = agent("idle", "class Idle(Agent):\n    def run(self, env):\n        submit(env)\n")
    assert carry_out(agents=[path]).is_complete
    agent("idle", "class Idle(Agent):\n    def run(self, env):\n        execute(env)\n")
    with pytest.raises(UsageError, match=r"the agent .*idle\.py changed since it started"):
        carry_out(agents=[path], repetitions=2)


class Pretending:
    """A runner that only notes what it was asked for, and puts results where they belong."""

    def __init__(self, out: Path, result: str) -> None:
        self.out, self.result = out, result
        self.asked: list[tuple[str, str]] = []
        self.most, self._now, self._lock = 0, 0, threading.Lock()
        self.together = threading.Barrier(2, timeout=10)

    def run(self, job: Job, gpu: str) -> Path:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.asked.append((job.name, gpu))
        self.together.wait()
        (self.out / job.name).mkdir()
        (self.out / job.name / "run.json").touch()
        (self.out / job.name / "result.json").write_text(self.result)
        with self._lock:
            self._now -= 1
        return self.out / job.name

    def stop(self) -> None:
        pass


def test_slots_are_handed_out_by_gpu_and_no_more_run_at_a_time_than_there_are(
    carry_out: Callable[..., BatchOutcome], tmp_path: Path, toy: Path
) -> None:
    result = carry_out().results[0].model_dump_json(exclude={"folder"})
    plan = plan_of(tasks=[str(toy)], agents=["nothing"], repetitions=20)
    survey, jobs = surveyed(tmp_path / "other", plan)
    runner = Pretending(tmp_path / "other", result)
    batch = Scheduler(survey, plan, runner, ["0", "1"], quiet, quiet)
    for job in jobs:
        batch.add(job)
    batch.run()
    assert batch.status.totals.done == 20 and runner.most == 2
    assert [name for name, _ in runner.asked[:2]] == [job.name for job in jobs[:2]]
    assert {gpu for _, gpu in runner.asked} == {"0", "1"}
    assert assign_gpus_to_slots(3, "") == ["", "", ""] and assign_gpus_to_slots(None, "") == [""]
    with pytest.raises(UsageError, match="No such GPU: '97'"):
        assign_gpus_to_slots(2, "97")


def test_in_a_pipe_a_run_that_is_about_to_begin_is_not_told_of_and_one_that_stopped_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = ProgressLines()
    for state, steps in (("queued", 0), ("stopped", 0), ("running", 3), ("stopped", 3), ("stopped", 3)):
        standing = RunStatus(name="run", task="toy", agent="act", state=state, steps=steps)
        lines.show(BatchStatus(running=True, budget=Budget(), runs=(standing,)))
    assert capsys.readouterr().err.splitlines()[1:] == ["run: stopped after 3 steps"]


def test_the_index_is_made_again_when_it_is_gone_damaged_or_stale(
    carry_out: Callable[..., BatchOutcome], tmp_path: Path
) -> None:
    ended = carry_out(repetitions=2)
    index = tmp_path / "out" / "index.sqlite"

    def rows() -> list[Any]:
        with sqlite3.connect(index) as database:
            found = database.execute("SELECT name, score, ending FROM results ORDER BY seed").fetchall()
        database.close()
        return found

    right = rows()
    assert [row[1:] for row in right] == [(5.0, "submitted")] * 2
    index.unlink()
    assert carry_out(repetitions=2).results == ended.results and rows() == right
    index.write_bytes(b"no database at all, but long enough to be one" * 100)
    assert carry_out(repetitions=2).results == ended.results and rows() == right
    with sqlite3.connect(index) as database:
        database.execute("UPDATE results SET record = 'nonsense', score = 1")
    database.close()
    assert carry_out(repetitions=2).results == ended.results
    place = Path(ended.results[0].folder) / "result.json"
    place.write_text(place.read_text().replace('"score": 5.0', '"score": 4.0'))
    assert carry_out(repetitions=2).results[0].score == 4.0 and rows()[0][1] == 4.0


def test_a_machine_that_was_started_again_has_another_clock_and_nobody_minds(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, cli: Cli
) -> None:
    patient = agent("patient", PATIENT.format(go=str(tmp_path / "go")))
    out = tmp_path / "out"
    words = ["--task", toy, "--agent", patient, "--repetitions", 2, "--hours", 0.1]
    with process(out, *words) as batch:
        until(lambda: list(out.glob("*/outputs/step-0002.txt")))
        batch.kill()
    (tmp_path / "go").touch()
    command = [sys.executable, "-m", "mlagentbench", "batch", "--out", *map(str, (out, *words, "--json"))]
    later = ["unshare", "--time", "--fork", "--monotonic", "9000000", "--boottime", "9000000"]
    later = later if os.geteuid() == 0 else [*later, "-r"]
    done = subprocess.run([*later, *command], capture_output=True, text=True, check=False, timeout=60)
    if "unshare failed" in done.stderr:
        pytest.skip("this kernel has no clocks of their own for processes")
    assert done.returncode == 0, done.stderr
    assert all(
        result["ending"] == "submitted" and result["seconds"] < 60 for result in json.loads(done.stdout)
    )


def test_nothing_that_decides_reads_a_clock_that_can_jump() -> None:
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


def test_in_a_terminal_running_jobs_are_drawn_live(tmp_path: Path, toy: Path) -> None:
    ours, theirs = os.openpty()
    terminal = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    words = ("--task", toy, "--agent", "tuner", "--agent", "baseline", "--steps", 8)
    with process(tmp_path / "out", *words, stdout=theirs, stderr=theirs, env=terminal) as batch:
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # the end of a terminal is an error
            while data := os.read(ours, 1 << 16):
                seen += data
        batch.wait()
    os.close(ours)
    assert batch.returncode == 0, seen
    assert b"queued" in seen and b"2 of 2 done (" in seen.rpartition(b"queued")[2]


def test_in_a_pipe_every_ending_is_a_line_and_results_are_json(cli: Cli, toy: Path, tmp_path: Path) -> None:
    done = cli(
        "batch", "--task", toy, "--agent", "nothing", "--repetitions", 2, "--out", tmp_path / "out", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert [result["seed"] for result in json.loads(done.stdout)] == [0, 1]
    lines = done.stderr.splitlines()
    assert lines[0] == "0 of 2 done (0 success, 0 invalid), 2 queued"
    assert sum("invalid: submission.csv is missing (submitted after 1 steps" in line for line in lines) == 2
    assert lines[-2] == "2 of 2 done (0 success, 2 invalid)"
    for words, sentence in {
        ("batch",): "pass --out FOLDER",
        ("batch", "--out", tmp_path / "x", "--task", "atlantis", "--agent", "nothing"): "No such task: 'atlantis'",
        ("batch", "--out", tmp_path / "x", "--task", "imdb"): "agents: field required",
        ("batch", tmp_path / "nowhere.toml"): "Cannot read",
    }.items():
        refused = cli(*words)
        assert refused.returncode == 2 and sentence in refused.stderr and refused.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()
