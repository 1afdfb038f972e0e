"""Batches with kills, crashes, faults and full disks: no result is lost, and none is computed twice."""

import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from batches import (
    FailingRunner,
    Until,
    batch_process,
    create_batch,
    find_processes,
    make_plan,
    quiet,
    runs_in_slow_script,
)

from mlagentbench.errors import Fault
from mlagentbench.records import Result
from mlagentbench.runner.batch.batch_status import BatchFollower, BatchStatus
from mlagentbench.runner.batch.folder import BatchFolder
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.orchestrator import BatchOutcome
from mlagentbench.runner.batch.scheduler import Scheduler
from mlagentbench.runner.folder import RunFolder


def comparable_record(folder: Path) -> tuple[object, ...]:
    """What must be the same in every run: everything but times and memory."""
    run = RunFolder(folder)
    masked = re.compile(r"\d+\.\d s, peak memory \d+ MB")
    steps = [(step.number, step.call, masked.sub("", step.observation), step.failed) for step in run.steps()]
    calls = [(call.number, call.step, masked.sub("", str(call.prompt)), call.reply) for call in run.calls()]
    assert run.result
    result = run.result.model_dump(
        include={"score", "success", "valid", "ending", "steps", "tokens", "note", "snapshot"}
    )
    return steps, calls, result


@pytest.mark.slow
def test_kills_at_random_moments_change_no_result(
    run_plan: Callable[..., BatchOutcome],
    toy: Path,
    tmp_path: Path,
    scripted_model: Callable[..., str],
    until: Until,
) -> None:
    keys = {
        "agents": ["act", "tuner"],
        "models": [scripted_model(4, scripts=4)],
        "repetitions": 2,
        "limits": {"steps": 12},
    }
    undisturbed = run_plan(**keys, out="undisturbed")
    (tmp_path / "plan.toml").write_text(
        f"tasks = [{str(toy)!r}]\nagents = ['act', 'tuner']\nmodels = ['{keys['models'][0]}']\n"
        "repetitions = 2\nlimits = { steps = 12 }\n"
    )
    rng, moments = random.Random(6), set()

    def bytes_written(out: Path) -> int:
        return sum(
            path.stat().st_size
            for pattern in ("trace.jsonl", "result.json")
            for path in out.glob(f"*/{pattern}")
        )

    def kill_batch(out: Path, late: bool) -> bool:
        """Run the batch, kill it, and return whether it was running. `late` waits for a new step first."""
        before = bytes_written(out)
        with batch_process(out, tmp_path / "plan.toml", "--jobs", 2, stdout=subprocess.DEVNULL) as batch:
            while late and bytes_written(out) <= before and batch.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    batch.wait(0.01)
            with suppress(subprocess.TimeoutExpired):
                batch.wait(rng.uniform(0, 0.1 if late else 0.8))
            batch.kill()
            batch.communicate()
        assert batch.returncode in (0, -signal.SIGKILL)
        return batch.returncode != 0

    for number in range(20):  # how often one batch can be killed depends on the machine
        out = tmp_path / f"out-{number}"
        while len(moments) < 10 and kill_batch(out, late=rng.random() < 0.75):
            moments.add((number, bytes_written(out)))
        with batch_process(out, tmp_path / "plan.toml", "--jobs", 2, "--json") as batch:
            stdout, stderr = batch.communicate(timeout=60)
        assert batch.returncode == 0, stderr
        assert [result["folder"] for result in json.loads(stdout)] == [
            Path(str(result.folder).replace("/undisturbed/", f"/{out.name}/"))
            for result in undisturbed.results
        ]
        for result in undisturbed.results:
            assert comparable_record(Path(result.folder)) == comparable_record(out / Path(result.folder).name)
        assert not list(out.glob("*/result-*.json")), "a kill is not a fault"
        if len(moments) == 10:
            break
    assert len(moments) == 10, "the kills must be spread over the batches"


def test_a_program_that_fails_at_its_start_is_not_repeated(
    cli: Callable[..., Any], toy: Path, tmp_path: Path
) -> None:
    (tmp_path / "script.txt").write_text("never asked")
    (tmp_path / "plan.toml").write_text(
        f"tasks = ['{toy}']\nmodels = ['scripted:{tmp_path}/script.txt']\npause = 0\n"
        "agents = [{ name = 'command', options = { command = 'sh -c \"exit 3\"' } }]\n"
    )
    cli("batch", tmp_path / "plan.toml", "--out", tmp_path / "out")
    (result,) = (tmp_path / "out").glob("*/result*.json")
    assert '"ProgramFault: The program ended with exit code 3 before' in result.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("death", "message"),
    [
        ("os._exit(0)", "The process of the run exited the interpreter (exit code 0)"),
        ("ctypes.string_at(0)", "was killed by SIGSEGV"),
    ],
)
def test_an_agent_that_crashes_the_interpreter_is_given_up_and_the_other_runs_continue(
    run_plan: Callable[..., BatchOutcome], agent: Callable[..., str], death: str, message: str
) -> None:
    crashing = agent(
        "crashing",
        f"class Crashing(Agent):\n    def run(self, env):\n        execute(env)\n        {death}\n",
    )
    outcome = run_plan(agents=[crashing, "baseline"], tries=2)
    assert (outcome.status.totals.fault, outcome.status.totals.done) == (1, 1) and not outcome.is_complete
    fault, result = outcome.results
    assert fault.ending == "fault" and fault.score is None and message in fault.note and fault.steps == 1
    assert result.score == 5.0
    evidence = sorted(path.name for path in Path(fault.folder).glob("result*.json"))
    assert evidence == ["result-1.json", "result.json"]
    again = run_plan(agents=[crashing, "baseline"], tries=2)
    assert again.results == outcome.results  # it is not tried again
    assert run_plan(agents=[crashing, "baseline"], tries=3).status.runs[0].faults == 3


def test_a_run_in_progress_when_the_process_died_is_resumed_in_a_subprocess(
    toy: Path, tmp_path: Path, slow_model: str, until: Until
) -> None:
    out = tmp_path / "out"
    arguments = ["--task", toy, "--agent", "act", "--model", slow_model]
    with batch_process(out, *arguments) as batch:
        until(lambda: runs_in_slow_script(out))
        path = runs_in_slow_script(out)[0]
        assert not find_processes(str(path))
        batch.kill()
        batch.communicate()
    with batch_process(out, *arguments) as batch:
        until(lambda: find_processes(str(path)))
        batch.terminate()
        _, stderr = batch.communicate(timeout=10)
    assert batch.returncode == 130 and "Stopped. All progress is saved" in stderr
    with BatchFolder(out).lock() as died:
        assert not died


def test_only_faults_are_retried_and_recorded_replies_are_not_paid_for_again(
    run_plan: Callable[..., BatchOutcome], scripted_model: Callable[..., str], tmp_path: Path
) -> None:
    model = scripted_model(3)
    whole = (tmp_path / "script").read_text()
    (tmp_path / "script").write_text("\n=====\n".join(whole.split("\n=====\n")[:2]))  # then the model fails

    def repair(status: BatchStatus) -> None:
        if status.runs[0].faults == 2:
            (tmp_path / "script").write_text(whole)

    outcome = run_plan(agents=["act"], models=[model], tries=5, show=repair, pause=0.7)
    result = outcome.results[0]
    assert (result.ending, result.score, result.steps) == ("submitted", 5.0, 5)
    folder = RunFolder(Path(result.folder))
    assert [call.number for call in folder.calls()] == [1, 2, 3, 4, 5]
    faults = [Result.model_validate_json(path.read_bytes()) for path in folder.path.glob("result-*.json")]
    assert len(faults) == 2 and all("has only 2 replies" in fault.note for fault in faults)
    assert outcome.status.runs[0].faults == 2


def test_attempts_are_limited_and_each_leaves_its_result(
    run_plan: Callable[..., BatchOutcome], scripted_model: Callable[..., str], tmp_path: Path
) -> None:
    model = scripted_model(1)
    (tmp_path / "script").write_text("Action: List Files\nAction Input: {}")
    outcome = run_plan(agents=["act", "nothing"], models=[model])
    assert [result.ending for result in outcome.results] == ["fault", "submitted"]
    assert outcome.status.runs[0].faults == 3
    assert len(list(Path(outcome.results[0].folder).glob("result*.json"))) == 3
    follower = BatchFollower(tmp_path / "out")
    spent = follower.refresh().totals.tokens
    RunFolder(Path(outcome.results[0].folder)).rewind()  # as at the start of another attempt
    assert follower.refresh().totals.tokens == spent > 0


class LeakyRunner(FailingRunner):
    """Each run leaves a reference cycle in memory, and waits until those of earlier runs are freed."""

    def __init__(self, until: Until) -> None:
        self.until = until
        self.leaked: list[weakref.ref[LeakyRunner]] = []

    def run(self, job: Job, gpu: str) -> Path:
        leak = LeakyRunner(self.until)
        leak.self = leak  # type: ignore[attr-defined]
        for earlier in self.leaked:
            self.until(lambda gone=earlier: gone() is None)  # type: ignore[misc]
        self.leaked.append(weakref.ref(leak))
        raise Fault("done")


def test_memory_of_a_finished_run_is_freed_while_others_run(
    tmp_path: Path, toy: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tasks=[str(toy)], agents=["nothing"], repetitions=3)
    follower, jobs = create_batch(tmp_path / "out", plan)
    runner = LeakyRunner(until)
    batch = Scheduler(follower, plan, runner, [""], quiet, quiet)
    monkeypatch.setattr("mlagentbench.runner.batch.scheduler.GC_INTERVAL_S", 0.0)
    for job in jobs:
        batch.add(job)
    gc.disable()
    try:
        batch.run()
    finally:
        gc.enable()
    assert len(runner.leaked) == 3 and all("done" in message for message in batch.errors.values())


def test_a_batch_stops_after_many_consecutive_faults(tmp_path: Path, toy: Path) -> None:
    plan = make_plan(tasks=[str(toy)], agents=["nothing"], repetitions=50)
    follower, jobs = create_batch(tmp_path / "out", plan)
    batch = Scheduler(follower, plan, FailingRunner(), [""], quiet, quiet)
    for job in jobs:
        batch.add(job)
    batch.run()
    assert (
        batch.stop_reason.startswith("10 consecutive runs failed with faults")
        and "disk error" in batch.stop_reason
    )
    assert batch.status.totals.queued == 50 and len(batch.errors) == 10


def test_a_thread_that_cannot_start_is_an_error_and_the_batch_can_be_resumed(
    run_plan: Callable[..., BatchOutcome],
) -> None:
    usual = threading.stack_size()

    def exhaust_threads(status: BatchStatus) -> None:
        threading.stack_size(2**46)  # more than any machine can map

    try:
        failed = run_plan(show=exhaust_threads)
    finally:
        threading.stack_size(usual)
    assert not failed.is_complete and set(failed.errors.values()) == {"can't start new thread"}
    assert run_plan().is_complete


def test_a_damaged_run_is_reported_and_the_other_runs_continue(
    run_plan: Callable[..., BatchOutcome], tmp_path: Path
) -> None:
    outcome = run_plan(repetitions=2)
    path = Path(outcome.results[0].folder)
    (path / "result.json").unlink()
    (path / "run.json").write_text("{")
    again = run_plan(repetitions=3)
    assert [result.seed for result in again.results] == [1, 2] and not again.is_complete
    assert "run.json is damaged" in again.errors[path.name]
    cut = tmp_path / "out" / run_plan(repetitions=3).status.runs[1].name
    assert cut.is_dir()


FULL_DISK_SCRIPT = """
set -u
mount -t tmpfs -o size=1500k tmpfs "$1/disk"
"$2" -m mlagentbench batch "$1/plan.toml" --out "$1/disk/out" --jobs 2 --json >"$1/out1" 2>"$1/err1"
echo $? >"$1/code1"
mount -o remount,size=90m "$1/disk"
"$2" -m mlagentbench batch "$1/plan.toml" --out "$1/disk/out" --jobs 2 --json >"$1/out2" 2>"$1/err2"
echo $? >"$1/code2"
cp -r "$1/disk/out" "$1/kept"
"""


@pytest.mark.slow
def test_a_full_disk_loses_no_result_and_the_batch_can_be_resumed(
    run_plan: Callable[..., BatchOutcome], tmp_path: Path, toy: Path, scripted_model: Callable[..., str]
) -> None:
    scripted_model(18, 8000)
    text = (
        (tmp_path / "script")
        .read_text()
        .replace("Execute Script", "Read File")
        .replace("script_name", "file_name")
    )
    (tmp_path / "script").write_text(text)  # a script cannot even be started on so small a disk
    plan = (
        f"tasks = ['{toy}']\nagents = ['act']\nmodels = ['scripted:{tmp_path / 'script'}']\nrepetitions = 4\n"
    )
    (tmp_path / "plan.toml").write_text(plan + "sandbox = 'none'\npause = 0\ntries = 9\n")
    (tmp_path / "disk").mkdir()
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    shell = [*unshare, "sh", "-c", FULL_DISK_SCRIPT, "sh", str(tmp_path), sys.executable]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    stderr = (tmp_path / "err1").read_text()
    assert (tmp_path / "code1").read_text() == "1\n" and "Traceback" not in stderr, stderr
    assert "disk full" in stderr or "No space left" in stderr
    assert (tmp_path / "code2").read_text() == "0\n", (tmp_path / "err2").read_text()
    keys = {
        "agents": ["act"],
        "models": [f"scripted:{tmp_path / 'script'}"],
        "repetitions": 4,
        "sandbox": "none",
    }
    for result in run_plan(**keys).results:
        assert comparable_record(Path(result.folder)) == comparable_record(
            tmp_path / "kept" / Path(result.folder).name
        )
