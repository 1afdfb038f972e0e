"""Batches through kills, stops, faults and changes of mind: no result is lost, none is made twice."""

import ast
import gc
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import mlagentbench
from mlagentbench.errors import Fault, UsageError
from mlagentbench.records import Result
from mlagentbench.runner.batch.batch import Batch
from mlagentbench.runner.batch.conduct import Ended, conduct, slots_of
from mlagentbench.runner.batch.folder import BatchFolder, BatchRecord
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.plan import Budget, Plan
from mlagentbench.runner.batch.standing import Standing
from mlagentbench.runner.batch.survey import Survey, View
from mlagentbench.runner.folder import RunFolder
from mlagentbench.sandbox.processes import family
from mlagentbench.terminal.progress import Lines

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
Until = Callable[[Callable[[], object]], None]

HEAD = """
import ctypes, os
from pathlib import Path
from mlagentbench.agents.base import Agent
from mlagentbench.models.base import Model
from mlagentbench.records import Call, Message, Reply

def write(env, name, content):
    return env.step(Call(action="Write File", args={"file_name": name, "content": content}))

def execute(env, name="train.py"):
    return env.step(Call(action="Execute Script", args={"script_name": name}))

def submit(env):
    return env.step(Call(action="Final Answer", args={"final_answer": "done"}))

"""
# Executes something that only ends if a file is there, on the second look: the step was never done, and may differ.
PATIENT = """
class Patient(Agent):
    def run(self, env):
        write(env, "wait.py", "import time\\nprint('waiting', flush=True)\\ntime.sleep(1000)")
        execute(env, "train.py" if Path({go!r}).exists() else "wait.py")
        submit(env)
"""


def quiet(line: object) -> None:
    pass


def plan_of(**keys: Any) -> Plan:
    return Plan.model_validate({"pause": 0, **keys})


@pytest.fixture
def carry_out(tmp_path: Path, toy: Path) -> Callable[..., Ended]:
    """A batch of the toy in this process."""

    def run(
        plan: Plan | None = None,
        jobs: int = 2,
        out: str = "out",
        show: Callable[[View], None] = quiet,
        **keys: Any,
    ) -> Ended:
        plan = plan or plan_of(**{"tasks": [str(toy)], "agents": ["baseline"], **keys})
        return conduct(tmp_path / out, plan, slots_of(jobs, ""), quiet, show)

    return run


@pytest.fixture
def agent(tmp_path: Path) -> Callable[..., str]:
    """The path of an agent with this code."""

    def write(name: str, code: str) -> str:
        path = tmp_path / f"{name}.py"
        path.write_text(HEAD + code)
        return str(path)

    return write


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """A model that writes some files, executes the starter and submits."""

    def write(writes: int, size: int = 5, scripts: int = 1) -> str:
        dice = random.Random(writes)
        calls = [
            ("Write File", {"file_name": f"n{number}", "content": dice.randbytes(size).hex()})
            for number in range(writes)
        ]
        calls += [("Execute Script", {"script_name": "train.py"})] * scripts
        calls.append(("Final Answer", {"final_answer": "done"}))
        said = [f"Action: {action}\nAction Input: {json.dumps(args)}" for action, args in calls]
        (tmp_path / "script").write_text("\n=====\n".join(said))
        return f"scripted:{tmp_path / 'script'}"

    return write


@contextmanager
def process(out: Path, *words: object, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """A batch in a process of its own."""
    command = [sys.executable, "-m", "mlagentbench", "batch", "--out", *map(str, (out, *words))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **{**pipes, **options}) as batch:
        try:
            yield batch
        finally:
            batch.kill()


def essence(folder: Path) -> tuple[object, ...]:
    """What must repeat of a run: all but times and memory."""
    run = RunFolder(folder)
    masked = re.compile(r"\d+\.\d s, peak memory \d+ MB")
    steps = [(step.number, step.call, masked.sub("", step.observation), step.failed) for step in run.steps()]
    calls = [(call.number, call.step, masked.sub("", str(call.prompt)), call.reply) for call in run.calls()]
    assert run.result
    said = run.result.model_dump(include={"score", "success", "valid", "ending", "steps", "tokens", "note", "snapshot"})
    return steps, calls, said


def states(out: Path) -> dict[str, str]:
    return {each.name: each.state for each in Survey(out).look().standings}


def test_every_job_is_run_once_and_a_finished_batch_is_left_alone(
    carry_out: Callable[..., Ended], tmp_path: Path, script: Callable[..., str]
) -> None:
    keys = {"agents": ["baseline", "nothing", "act"], "models": [script(2)], "repetitions": 2}
    seen: list[View] = []
    ended = carry_out(**keys, show=seen.append)
    assert ended.good and not ended.reason and not ended.troubles
    totals = ended.view.totals
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
    assert conduct(tmp_path / "out", None, [""], quiet, quiet).results == ended.results


def test_kills_at_random_moments_change_no_result(
    carry_out: Callable[..., Ended], toy: Path, tmp_path: Path, script: Callable[..., str], until: Until
) -> None:
    keys = {"agents": ["act", "tuner"], "models": [script(4, scripts=4)], "repetitions": 2, "limits": {"steps": 12}}
    calm = carry_out(**keys, out="calm")
    (tmp_path / "plan.toml").write_text(
        f"tasks = [{str(toy)!r}]\nagents = ['act', 'tuner']\nmodels = ['{keys['models'][0]}']\nrepetitions = 2\n"
        "limits = { steps = 12 }\n"
    )
    dice, moments = random.Random(6), set()

    def come(out: Path) -> int:
        return sum(
            path.stat().st_size for pattern in ("trace.jsonl", "result.json") for path in out.glob(f"*/{pattern}")
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
    [("os._exit(0)", "ended the interpreter (exit code 0)"), ("ctypes.string_at(0)", "was killed by SIGSEGV")],
)
def test_an_agent_that_crashes_the_interpreter_is_given_up_and_the_others_go_on(
    carry_out: Callable[..., Ended], agent: Callable[..., str], death: str, words: str
) -> None:
    deadly = agent("deadly", f"class Deadly(Agent):\n    def run(self, env):\n        execute(env)\n        {death}\n")
    ended = carry_out(agents=[deadly, "baseline"], tries=2)
    assert (ended.view.totals.fault, ended.view.totals.done) == (1, 1) and not ended.good
    fault, result = ended.results
    assert fault.ending == "fault" and fault.score is None and words in fault.note and fault.steps == 1
    assert result.score == 5.0
    evidence = sorted(path.name for path in Path(fault.folder).glob("result*.json"))
    assert evidence == ["result-1.json", "result.json"]
    again = carry_out(agents=[deadly, "baseline"], tries=2)
    assert again.results == ended.results  # it stays given up
    assert carry_out(agents=[deadly, "baseline"], tries=3).view.standings[0].faults == 3


SLOW = {"file_name": "slow.py", "content": "import time; print('waiting', flush=True); time.sleep(5)"}


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """A model that executes something which takes a while."""
    calls = [
        ("Write File", SLOW),
        ("Execute Script", {"script_name": "slow.py"}),
        ("Final Answer", {"final_answer": ""}),
    ]
    said = [f"Action: {action}\nAction Input: {json.dumps(args)}" for action, args in calls]
    (tmp_path / "slow").write_text("\n=====\n".join(said))
    return f"scripted:{tmp_path / 'slow'}"


def waiting(out: Path) -> list[Path]:
    """The runs that are in the middle of a script that takes long."""
    outputs = [path for path in out.glob("*/outputs/step-0002.txt") if b"waiting" in path.read_bytes()]
    return [path.parent.parent for path in outputs]


def processes(*words: str) -> list[int]:
    """Those whose command has one of these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if set(path.read_bytes().decode(errors="replace").split("\0")) & set(words):
                found.append(int(path.parent.name))
    return found


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
    assert batch.returncode == 130 and "stopped; everything is kept" in complaints
    with BatchFolder(out).lock() as died:
        assert not died


def test_only_faults_are_tried_again_and_what_was_paid_for_is_not_asked_again(
    carry_out: Callable[..., Ended], script: Callable[..., str], tmp_path: Path
) -> None:
    model = script(3)
    whole = (tmp_path / "script").read_text()
    (tmp_path / "script").write_text("\n=====\n".join(whole.split("\n=====\n")[:2]))  # then the model is down

    def mend(view: View) -> None:
        if view.standings[0].faults == 2:
            (tmp_path / "script").write_text(whole)

    ended = carry_out(agents=["act"], models=[model], tries=5, show=mend, pause=0.7)
    result = ended.results[0]
    assert (result.ending, result.score, result.steps) == ("submitted", 5.0, 5)
    folder = RunFolder(Path(result.folder))
    assert [call.number for call in folder.calls()] == [1, 2, 3, 4, 5]
    faults = [Result.model_validate_json(path.read_bytes()) for path in folder.path.glob("result-*.json")]
    assert len(faults) == 2 and all("has only 2 replies" in fault.note for fault in faults)
    assert ended.view.standings[0].faults == 2


def test_tries_have_a_cap_and_every_one_leaves_its_evidence(
    carry_out: Callable[..., Ended], script: Callable[..., str], tmp_path: Path
) -> None:
    model = script(1)
    (tmp_path / "script").write_text("Action: List Files\nAction Input: {}")
    ended = carry_out(agents=["act", "nothing"], models=[model])
    assert [result.ending for result in ended.results] == ["fault", "submitted"]
    assert ended.view.standings[0].faults == 3
    assert len(list(Path(ended.results[0].folder).glob("result*.json"))) == 3
    survey = Survey(tmp_path / "out")
    spent = survey.look().totals.tokens
    RunFolder(Path(ended.results[0].folder)).rewind()  # as at the beginning of another try
    assert survey.look().totals.tokens == spent > 0


def test_ctrl_c_stops_scripts_and_keeps_everything_and_the_same_command_goes_on(
    toy: Path, tmp_path: Path, agent: Callable[..., str], until: Until, slow: str
) -> None:
    go, out = tmp_path / "go", tmp_path / "out"
    patient = agent("patient", PATIENT.format(go=str(go)))
    words = ["--task", toy, "--agent", patient, "--agent", "act", "--model", slow, "--jobs", 2]
    with process(out, *words) as batch:
        until(lambda: len(waiting(out)) == 2)
        assert set(states(out).values()) == {"running"}
        scripts = set(family(batch.pid)) & set(processes("./slow.py", "./wait.py"))  # other tests have some, too
        assert scripts
        batch.send_signal(signal.SIGINT)
        _, complaints = batch.communicate(timeout=10)
    assert batch.returncode == 130 and "Traceback" not in complaints
    assert "stopped; everything is kept, and the same command goes on" in complaints
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
        until(lambda: set(processes("mlagentbench.grading.child")) & set(processes(str(task))))
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
        until(lambda: len(waiting(out)) == 3)  # the next one has taken its place, and this one is not begun again
        assert states(out)[one.name] == "stopped" and batch.poll() is None
        assert cli("stop", out).returncode == 0
        _, complaints = batch.communicate(timeout=10)
    assert batch.returncode == 130 and "somebody asked it to stop" in complaints
    assert set(states(out).values()) == {"stopped"} and not list(out.glob("**/stop"))
    nothing = cli("stop", out)
    assert nothing.returncode == 2 and "nothing is going on in" in nothing.stderr


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
        assert look["going"] and look["standings"][0]["state"] == "running" and look["standings"][0]["steps"] == 1
        assert json.loads(cli("watch", out.parent, "--once", "--json").stdout)["totals"]["unplanned"] == 1
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
            lambda: "running" in (now := list(states(out).values())) and now.count("queued") == 1 if out.is_dir() else 0
        )
        told = json.loads(cli("watch", out, "--json", "--once").stdout)
        assert told["going"] and told["totals"]["running"] == 1
        assert [each["state"] for each in told["standings"]] == ["finished", "fault", "running", "queued"]
        assert cli("stop", out).returncode == 0
        batch.communicate(timeout=10)
    shown = cli("watch", out)
    assert shown.returncode == 0 and "1 of 4 done (0 success, 1 invalid), 1 fault, 1 stopped, 1 queued" in shown.stdout
    missing = cli("watch", tmp_path / "nowhere")
    assert missing.returncode == 2 and "there is no folder" in missing.stderr


def test_two_batches_on_one_folder_are_refused(carry_out: Callable[..., Ended], tmp_path: Path) -> None:
    refused: list[str] = []

    def intrude(view: View) -> None:
        if not refused:
            with pytest.raises(UsageError, match="a batch is going on in") as caught:
                conduct(tmp_path / "out", None, [""], quiet, quiet)
            refused.append(str(caught.value))

    assert carry_out(show=intrude).good and refused
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    with pytest.raises(UsageError, match="is not empty, and no batch"):
        carry_out(out="full")
    with pytest.raises(UsageError, match="holds no batch to go on with"):
        conduct(tmp_path / "new", None, [""], quiet, quiet)


def test_of_a_plan_that_changed_only_new_combinations_run_and_old_ones_stay(
    carry_out: Callable[..., Ended], tmp_path: Path
) -> None:
    first = carry_out(agents=["baseline", "nothing"])
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/*/result.json")}
    second = carry_out(agents=["baseline"], repetitions=2)
    assert second.good and [result.seed for result in second.results] == [0, 1]
    assert second.results[0] == first.results[0]
    assert {path: path.stat().st_mtime_ns for path in written} == written
    old = [each for each in second.view.standings if not each.planned]
    assert [(each.agent, each.state) for each in old] == [("nothing", "finished")]
    assert second.view.totals.unplanned == 1
    assert carry_out(agents=["baseline", "nothing"], repetitions=2).good
    assert len(list(tmp_path.glob("out/*/run.json"))) == 4


@pytest.mark.parametrize(
    ("file", "what"), [("description.md", "task"), ("grade.py", "task and grader"), ("prepare.py", "task and data")]
)
def test_a_change_of_what_results_depend_on_is_refused(
    carry_out: Callable[..., Ended], variant: Callable[..., Path], tmp_path: Path, file: str, what: str
) -> None:
    task = variant({})
    assert carry_out(tasks=[str(task)]).good
    before = (tmp_path / "out" / "batch.json").read_bytes()
    text = (task / file).read_text()
    (task / file).write_text(text.replace("range(10)", "range(11)") + "\n# something else\n")
    with pytest.raises(UsageError, match=rf"cannot go on: the {what} of .* changed since it began"):
        carry_out(tasks=[str(task)], repetitions=2)
    assert (tmp_path / "out" / "batch.json").read_bytes() == before
    assert carry_out(tasks=[str(task)]).good  # all of it is done: nothing depends on the change


def test_a_change_of_an_agent_file_is_refused(carry_out: Callable[..., Ended], agent: Callable[..., str]) -> None:
    path = agent("idle", "class Idle(Agent):\n    def run(self, env):\n        submit(env)\n")
    assert carry_out(agents=[path]).good
    agent("idle", "class Idle(Agent):\n    def run(self, env):\n        execute(env)\n")
    with pytest.raises(UsageError, match=r"the agent .*idle\.py changed since it began"):
        carry_out(agents=[path], repetitions=2)


COSTLY = """
class Costly(Model):
    def reply(self, prompt):
        return Reply(text="x", input_tokens=10, output_tokens=10, dollars=0.4)

class Asking(Agent):
    def run(self, env):
        env.ledger.models = {"main": Costly()}
        env.ask([Message(role="user", text="what?")])
        execute(env)
        submit(env)
"""


def test_a_budget_in_money_that_is_used_up_begins_nothing_more(
    carry_out: Callable[..., Ended], agent: Callable[..., str]
) -> None:
    keys = {"agents": [agent("asking", COSTLY)], "repetitions": 3, "budget": {"dollars": 0.5}}
    ended = carry_out(**keys, jobs=1)
    totals = ended.view.totals
    assert (totals.done + totals.stopped, totals.queued) == (2, 1) and not ended.good
    assert ended.reason == "the budget of $0.5 is used up ($0.80)"
    again = carry_out(**keys, jobs=1)
    assert again.results == ended.results and again.reason == ended.reason
    more = carry_out(**{**keys, "budget": {"dollars": 9}}, jobs=1)
    assert more.good and round(more.view.totals.dollars, 6) == 1.2


def test_a_budget_that_ends_while_a_run_goes_on_leaves_it_to_be_resumed(
    carry_out: Callable[..., Ended], agent: Callable[..., str], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    patient = agent("patient", PATIENT.format(go=str(go)))
    keys = {"agents": [patient], "repetitions": 2, "budget": {"hours": 1e-9}}
    ended = carry_out(**keys, jobs=1)
    assert "hours of runs is used up" in ended.reason
    assert (ended.view.totals.stopped, ended.view.totals.queued) == (1, 1) and not ended.results
    go.touch()
    assert carry_out(**{**keys, "budget": {}}).good


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


def surveyed(out: Path, plan: Plan) -> tuple[Survey, list[Job]]:
    out.mkdir()
    jobs = plan.jobs()
    folder = BatchFolder(out)
    folder.write(BatchRecord(plan=plan, jobs=tuple(jobs)))
    return Survey(out), jobs


def test_slots_are_handed_out_by_gpu_and_no_more_run_at_a_time_than_there_are(
    carry_out: Callable[..., Ended], tmp_path: Path, toy: Path
) -> None:
    result = carry_out().results[0].model_dump_json(exclude={"folder"})
    plan = plan_of(tasks=[str(toy)], agents=["nothing"], repetitions=20)
    survey, jobs = surveyed(tmp_path / "other", plan)
    runner = Pretending(tmp_path / "other", result)
    batch = Batch(survey, plan, runner, ["0", "1"], quiet, quiet)
    for job in jobs:
        batch.add(job)
    batch.run()
    assert batch.view.totals.done == 20 and runner.most == 2
    assert [name for name, _ in runner.asked[:2]] == [job.name for job in jobs[:2]]
    assert {gpu for _, gpu in runner.asked} == {"0", "1"}
    assert slots_of(3, "") == ["", "", ""] and slots_of(None, "") == [""]
    with pytest.raises(UsageError, match="no GPU '97' here"):
        slots_of(2, "97")


def test_in_a_pipe_a_run_that_is_about_to_begin_is_not_told_of_and_one_that_stopped_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = Lines()
    for state, steps in (("queued", 0), ("stopped", 0), ("running", 3), ("stopped", 3), ("stopped", 3)):
        standing = Standing(name="run", task="toy", agent="act", state=state, steps=steps)
        lines.show(View(going=True, budget=Budget(), standings=(standing,)))
    assert capsys.readouterr().err.splitlines()[1:] == ["run: stopped after 3 steps"]


class Broken:
    """A machine on which nothing works."""

    def run(self, job: Job, gpu: str) -> Path:
        raise Fault("the disk went mad")

    def stop(self) -> None:
        pass


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
    batch = Batch(survey, plan, runner, [""], quiet, quiet)
    monkeypatch.setattr("mlagentbench.runner.batch.batch.SWEEP", 0.0)
    for job in jobs:
        batch.add(job)
    gc.disable()
    try:
        batch.run()
    finally:
        gc.enable()
    assert len(runner.left) == 3 and all("that was all" in each for each in batch.troubles.values())


def test_when_nothing_works_any_more_the_batch_does_not_use_up_its_jobs(tmp_path: Path, toy: Path) -> None:
    plan = plan_of(tasks=[str(toy)], agents=["nothing"], repetitions=50)
    survey, jobs = surveyed(tmp_path / "out", plan)
    batch = Batch(survey, plan, Broken(), [""], quiet, quiet)
    for job in jobs:
        batch.add(job)
    batch.run()
    assert batch.reason.startswith("10 runs in a row failed") and "the disk went mad" in batch.reason
    assert batch.view.totals.queued == 50 and len(batch.troubles) == 10


def test_a_thread_that_cannot_be_begun_is_a_trouble_and_the_same_command_goes_on(
    carry_out: Callable[..., Ended],
) -> None:
    usual = threading.stack_size()

    def starve(view: View) -> None:
        threading.stack_size(2**46)  # no machine has room for that

    try:
        starved = carry_out(show=starve)
    finally:
        threading.stack_size(usual)
    assert not starved.good and set(starved.troubles.values()) == {"can't start new thread"}
    assert carry_out().good


def test_the_index_is_made_again_when_it_is_gone_damaged_or_stale(
    carry_out: Callable[..., Ended], tmp_path: Path
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


def test_a_damaged_run_is_told_and_the_others_go_on(carry_out: Callable[..., Ended], tmp_path: Path) -> None:
    ended = carry_out(repetitions=2)
    place = Path(ended.results[0].folder)
    (place / "result.json").unlink()
    (place / "run.json").write_text("{")
    again = carry_out(repetitions=3)
    assert [result.seed for result in again.results] == [1, 2] and not again.good
    assert "run.json is damaged" in again.troubles[place.name]
    cut = tmp_path / "out" / carry_out(repetitions=3).view.standings[1].name
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
    carry_out: Callable[..., Ended], tmp_path: Path, toy: Path, script: Callable[..., str]
) -> None:
    script(18, 8000)
    text = (tmp_path / "script").read_text().replace("Execute Script", "Read File").replace("script_name", "file_name")
    (tmp_path / "script").write_text(text)  # a script is not even begun on so small a disk
    plan = f"tasks = ['{toy}']\nagents = ['act']\nmodels = ['scripted:{tmp_path / 'script'}']\nrepetitions = 4\n"
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
    keys = {"agents": ["act"], "models": [f"scripted:{tmp_path / 'script'}"], "repetitions": 4, "sandbox": "none"}
    for result in carry_out(**keys).results:
        assert essence(Path(result.folder)) == essence(tmp_path / "kept" / Path(result.folder).name)


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
    assert all(result["ending"] == "submitted" and result["seconds"] < 60 for result in json.loads(done.stdout))


def test_nothing_that_decides_reads_a_clock_that_can_jump() -> None:
    source = Path(mlagentbench.__file__).parent
    files = [*source.glob("runner/batch/*.py"), source / "environment.py", source / "stopping.py", source / "locks.py"]
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
    done = cli("batch", "--task", toy, "--agent", "nothing", "--repetitions", 2, "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    assert [result["seed"] for result in json.loads(done.stdout)] == [0, 1]
    lines = done.stderr.splitlines()
    assert lines[0] == "0 of 2 done (0 success, 0 invalid), 2 queued"
    assert sum("invalid: submission.csv is missing (submitted after 1 steps" in line for line in lines) == 2
    assert lines[-2] == "2 of 2 done (0 success, 2 invalid)"
    for words, sentence in {
        ("batch",): "pass --out FOLDER",
        ("batch", "--out", tmp_path / "x", "--task", "atlantis", "--agent", "nothing"): "no task 'atlantis'",
        ("batch", "--out", tmp_path / "x", "--task", "imdb"): "agents: field required",
        ("batch", tmp_path / "nowhere.toml"): "cannot be read",
    }.items():
        refused = cli(*words)
        assert refused.returncode == 2 and sentence in refused.stderr and refused.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()
