"""Batches through kills, crashes, faults and full disks: no result is lost, none is made twice."""

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

import pytest
from batches import Broken, Until, plan_of, process, processes, quiet, surveyed, waiting

from mlagentbench.errors import Fault
from mlagentbench.records import Result
from mlagentbench.runner.batch.batch_status import BatchFollower, BatchStatus
from mlagentbench.runner.batch.folder import BatchFolder
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.orchestrator import BatchOutcome
from mlagentbench.runner.batch.scheduler import Scheduler
from mlagentbench.runner.folder import RunFolder


def essence(folder: Path) -> tuple[object, ...]:
    """What must repeat of a run: all but times and memory."""
    run = RunFolder(folder)
    masked = re.compile(r"\d+\.\d s, peak memory \d+ MB")
    steps = [(step.number, step.call, masked.sub("", step.observation), step.failed) for step in run.steps()]
    calls = [(call.number, call.step, masked.sub("", str(call.prompt)), call.reply) for call in run.calls()]
    assert run.result
    said = run.result.model_dump(
        include={"score", "success", "valid", "ending", "steps", "tokens", "note", "snapshot"}
    )
    return steps, calls, said


def test_kills_at_random_moments_change_no_result(
    carry_out: Callable[..., BatchOutcome],
    toy: Path,
    tmp_path: Path,
    script: Callable[..., str],
    until: Until,
) -> None:
    keys = {
        "agents": ["act", "tuner"],
        "models": [script(4, scripts=4)],
        "repetitions": 2,
        "limits": {"steps": 12},
    }
    calm = carry_out(**keys, out="calm")
    (tmp_path / "plan.toml").write_text(
        f"tasks = [{str(toy)!r}]\nagents = ['act', 'tuner']\nmodels = ['{keys['models'][0]}']\nrepetitions = 2\n"
        "limits = { steps = 12 }\n"
    )
    dice, moments = random.Random(6), set()

    def come(out: Path) -> int:
        return sum(
            path.stat().st_size
            for pattern in ("trace.jsonl", "result.json")
            for path in out.glob(f"*/{pattern}")
        )

    def killed(out: Path, late: bool) -> bool:
        """Whether the batch was still at work; one that is not killed late may be before it begins."""
        before = come(out)
        with process(out, tmp_path / "plan.toml", "--jobs", 2, stdout=subprocess.DEVNULL) as batch:
            while late and come(out) <= before and batch.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    batch.wait(0.01)
            with suppress(subprocess.TimeoutExpired):
                batch.wait(dice.uniform(0, 0.1 if late else 0.8))
            batch.kill()
            batch.communicate()
        assert batch.returncode in (0, -signal.SIGKILL)
        return batch.returncode != 0

    for number in range(20):  # how many kills one batch takes depends on the machine
        out = tmp_path / f"out-{number}"
        while len(moments) < 10 and killed(out, late=dice.random() < 0.75):
            moments.add((number, come(out)))
        with process(out, tmp_path / "plan.toml", "--jobs", 2, "--json") as batch:
            said, complaints = batch.communicate(timeout=60)
        assert batch.returncode == 0, complaints
        assert [result["folder"] for result in json.loads(said)] == [
            result.folder.replace("/calm/", f"/{out.name}/") for result in calm.results
        ]
        for result in calm.results:
            assert essence(Path(result.folder)) == essence(out / Path(result.folder).name)
        assert not list(out.glob("*/result-*.json")), "a kill is no fault"
        if len(moments) == 10:
            break
    assert len(moments) == 10, "the kills must be spread over batches"


@pytest.mark.parametrize(
    ("death", "words"),
    [
        ("os._exit(0)", "The process of the run exited the interpreter (exit code 0)"),
        ("ctypes.string_at(0)", "was killed by SIGSEGV"),
    ],
)
def test_an_agent_that_crashes_the_interpreter_is_given_up_and_the_others_go_on(
    carry_out: Callable[..., BatchOutcome], agent: Callable[..., str], death: str, words: str
) -> None:
    deadly = agent(
        "deadly", f"class Deadly(Agent):\n    def run(self, env):\n        execute(env)\n        {death}\n"
    )
    ended = carry_out(agents=[deadly, "baseline"], tries=2)
    assert (ended.status.totals.fault, ended.status.totals.done) == (1, 1) and not ended.is_complete
    fault, result = ended.results
    assert fault.ending == "fault" and fault.score is None and words in fault.note and fault.steps == 1
    assert result.score == 5.0
    evidence = sorted(path.name for path in Path(fault.folder).glob("result*.json"))
    assert evidence == ["result-1.json", "result.json"]
    again = carry_out(agents=[deadly, "baseline"], tries=2)
    assert again.results == ended.results  # it stays given up
    assert carry_out(agents=[deadly, "baseline"], tries=3).status.runs[0].faults == 3


def test_a_run_during_which_the_process_died_goes_on_apart_from_the_others(
    toy: Path, tmp_path: Path, slow: str, until: Until
) -> None:
    out = tmp_path / "out"
    words = ["--task", toy, "--agent", "act", "--model", slow]
    with process(out, *words) as batch:
        until(lambda: waiting(out))
        place = waiting(out)[0]
        assert not processes(str(place))
        batch.kill()
        batch.communicate()
    with process(out, *words) as batch:
        until(lambda: processes(str(place)))
        batch.terminate()
        _, complaints = batch.communicate(timeout=10)
    assert batch.returncode == 130 and "Stopped. All progress is saved" in complaints
    with BatchFolder(out).lock() as died:
        assert not died


def test_only_faults_are_tried_again_and_what_was_paid_for_is_not_asked_again(
    carry_out: Callable[..., BatchOutcome], script: Callable[..., str], tmp_path: Path
) -> None:
    model = script(3)
    whole = (tmp_path / "script").read_text()
    (tmp_path / "script").write_text("\n=====\n".join(whole.split("\n=====\n")[:2]))  # then the model is down

    def mend(view: BatchStatus) -> None:
        if view.runs[0].faults == 2:
            (tmp_path / "script").write_text(whole)

    ended = carry_out(agents=["act"], models=[model], tries=5, show=mend, pause=0.7)
    result = ended.results[0]
    assert (result.ending, result.score, result.steps) == ("submitted", 5.0, 5)
    folder = RunFolder(Path(result.folder))
    assert [call.number for call in folder.calls()] == [1, 2, 3, 4, 5]
    faults = [Result.model_validate_json(path.read_bytes()) for path in folder.path.glob("result-*.json")]
    assert len(faults) == 2 and all("has only 2 replies" in fault.note for fault in faults)
    assert ended.status.runs[0].faults == 2


def test_tries_have_a_cap_and_every_one_leaves_its_evidence(
    carry_out: Callable[..., BatchOutcome], script: Callable[..., str], tmp_path: Path
) -> None:
    model = script(1)
    (tmp_path / "script").write_text("Action: List Files\nAction Input: {}")
    ended = carry_out(agents=["act", "nothing"], models=[model])
    assert [result.ending for result in ended.results] == ["fault", "submitted"]
    assert ended.status.runs[0].faults == 3
    assert len(list(Path(ended.results[0].folder).glob("result*.json"))) == 3
    survey = BatchFollower(tmp_path / "out")
    spent = survey.refresh().totals.tokens
    RunFolder(Path(ended.results[0].folder)).rewind()  # as at the beginning of another try
    assert survey.refresh().totals.tokens == spent > 0


class Littering(Broken):
    """Each run leaves something in memory that refers to itself, and waits until what was left before has gone."""

    def __init__(self, until: Until) -> None:
        self.until = until
        self.left: list[weakref.ref[Littering]] = []

    def run(self, job: Job, gpu: str) -> Path:
        litter = Littering(self.until)
        litter.self = litter  # type: ignore[attr-defined]
        for earlier in self.left:
            self.until(lambda gone=earlier: gone() is None)  # type: ignore[misc]
        self.left.append(weakref.ref(litter))
        raise Fault("that was all")


def test_what_a_run_leaves_in_memory_is_freed_while_others_go_on(
    tmp_path: Path, toy: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tasks=[str(toy)], agents=["nothing"], repetitions=3)
    survey, jobs = surveyed(tmp_path / "out", plan)
    runner = Littering(until)
    batch = Scheduler(survey, plan, runner, [""], quiet, quiet)
    monkeypatch.setattr("mlagentbench.runner.batch.scheduler.GC_INTERVAL_S", 0.0)
    for job in jobs:
        batch.add(job)
    gc.disable()
    try:
        batch.run()
    finally:
        gc.enable()
    assert len(runner.left) == 3 and all("that was all" in each for each in batch.errors.values())


def test_when_nothing_works_any_more_the_batch_does_not_use_up_its_jobs(tmp_path: Path, toy: Path) -> None:
    plan = plan_of(tasks=[str(toy)], agents=["nothing"], repetitions=50)
    survey, jobs = surveyed(tmp_path / "out", plan)
    batch = Scheduler(survey, plan, Broken(), [""], quiet, quiet)
    for job in jobs:
        batch.add(job)
    batch.run()
    assert (
        batch.stop_reason.startswith("10 consecutive runs failed with faults")
        and "the disk went mad" in batch.stop_reason
    )
    assert batch.status.totals.queued == 50 and len(batch.errors) == 10


def test_a_thread_that_cannot_be_begun_is_a_trouble_and_the_same_command_goes_on(
    carry_out: Callable[..., BatchOutcome],
) -> None:
    usual = threading.stack_size()

    def starve(view: BatchStatus) -> None:
        threading.stack_size(2**46)  # no machine has room for that

    try:
        starved = carry_out(show=starve)
    finally:
        threading.stack_size(usual)
    assert not starved.is_complete and set(starved.errors.values()) == {"can't start new thread"}
    assert carry_out().is_complete


def test_a_damaged_run_is_told_and_the_others_go_on(
    carry_out: Callable[..., BatchOutcome], tmp_path: Path
) -> None:
    ended = carry_out(repetitions=2)
    place = Path(ended.results[0].folder)
    (place / "result.json").unlink()
    (place / "run.json").write_text("{")
    again = carry_out(repetitions=3)
    assert [result.seed for result in again.results] == [1, 2] and not again.is_complete
    assert "run.json is damaged" in again.errors[place.name]
    cut = tmp_path / "out" / carry_out(repetitions=3).status.runs[1].name
    assert cut.is_dir()


DISK = """
set -u
mount -t tmpfs -o size=1500k tmpfs "$1/disk"
"$2" -m mlagentbench batch "$1/plan.toml" --out "$1/disk/out" --jobs 2 --json >"$1/out1" 2>"$1/err1"
echo $? >"$1/code1"
mount -o remount,size=90m "$1/disk"
"$2" -m mlagentbench batch "$1/plan.toml" --out "$1/disk/out" --jobs 2 --json >"$1/out2" 2>"$1/err2"
echo $? >"$1/code2"
cp -r "$1/disk/out" "$1/kept"
"""


def test_a_full_disk_loses_no_result_and_the_batch_goes_on_when_there_is_room(
    carry_out: Callable[..., BatchOutcome], tmp_path: Path, toy: Path, script: Callable[..., str]
) -> None:
    script(18, 8000)
    text = (
        (tmp_path / "script")
        .read_text()
        .replace("Execute Script", "Read File")
        .replace("script_name", "file_name")
    )
    (tmp_path / "script").write_text(text)  # a script is not even begun on so small a disk
    plan = (
        f"tasks = ['{toy}']\nagents = ['act']\nmodels = ['scripted:{tmp_path / 'script'}']\nrepetitions = 4\n"
    )
    (tmp_path / "plan.toml").write_text(plan + "sandbox = 'none'\npause = 0\ntries = 9\n")
    (tmp_path / "disk").mkdir()
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    shell = [*unshare, "sh", "-c", DISK, "sh", str(tmp_path), sys.executable]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    complaints = (tmp_path / "err1").read_text()
    assert (tmp_path / "code1").read_text() == "1\n" and "Traceback" not in complaints, complaints
    assert "disk full" in complaints or "No space left" in complaints
    assert (tmp_path / "code2").read_text() == "0\n", (tmp_path / "err2").read_text()
    keys = {
        "agents": ["act"],
        "models": [f"scripted:{tmp_path / 'script'}"],
        "repetitions": 4,
        "sandbox": "none",
    }
    for result in carry_out(**keys).results:
        assert essence(Path(result.folder)) == essence(tmp_path / "kept" / Path(result.folder).name)
