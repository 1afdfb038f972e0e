"""Batches that wait for a model server that is down, a model that does not answer, or a slow grader."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_provider import BrokenReply, FakeProvider

from mlagentbench.models import hosted
from mlagentbench.providers.retry_policy import RetryPolicy
from mlagentbench.runner.batch.batch_status import BatchFollower, BatchStatus
from mlagentbench.runner.batch.orchestrator import run_batch
from mlagentbench.runner.batch.plan import Plan, read_plan
from mlagentbench.runner.folder import RunFolder

Until = Callable[[Callable[[], object]], None]
REPLIES = [
    f"Action: {action}\nAction Input: {json.dumps(args)}"
    for action, args in [
        ("Execute Script", {"script_name": "train.py"}),
        ("Write File", {"file_name": "note", "content": "x"}),
        ("Final Answer", {"final_answer": "done"}),
    ]
]


def quiet(line: object) -> None:
    pass


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_model_server_that_is_down_for_a_while_costs_attempts_but_no_result(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted, "RetryPolicy", partial(RetryPolicy, max_attempts=2, first_wait_s=0.01))
    port, servers = unused_port(), list[FakeProvider]()

    def repair(status: BatchStatus) -> None:
        if status.runs[0].faults >= 2 and not servers:
            servers.append(FakeProvider(*REPLIES, port=port).__enter__())

    keys = {"tasks": [str(toy)], "agents": ["act"], "models": [f"http://127.0.0.1:{port}/v1#any"]}
    plan = Plan.model_validate({**keys, "tries": 9, "pause": 0.3})
    try:
        (result,) = run_batch(tmp_path / "out", plan, [""], quiet, repair).results
    finally:
        for server in servers:
            server.__exit__()
    assert (result.ending, result.score, result.steps) == ("submitted", 5.0, 3)
    evidence = [json.loads(path.read_text()) for path in Path(result.folder).glob("result-*.json")]
    assert len(evidence) >= 2 and all("failed after 2 attempts" in result["note"] for result in evidence)
    assert len(list(RunFolder(Path(result.folder)).calls())) == 3


@contextmanager
def batch(out: Path, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "mlagentbench", "batch", "--out", *map(str, (out, *arguments))]
    with subprocess.Popen(command, text=True, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def assert_stops_in_time(process: "subprocess.Popen[str]", out: Path) -> None:
    """Press Ctrl-C once; the batch must stop within ten seconds and leave all runs stopped."""
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130 and "Stopped. All progress is saved" in stderr, stderr
    assert time.monotonic() - started < 10
    assert {run.state for run in BatchFollower(out).refresh().runs} == {"stopped"}


@pytest.mark.slow
def test_a_batch_can_be_stopped_while_a_model_does_not_answer(
    toy: Path, tmp_path: Path, until: Until
) -> None:
    with FakeProvider(REPLIES[0], BrokenReply("stall")) as wire:
        arguments = ["--task", toy, "--agent", "act", "--model", f"{wire.url}/v1#any"]
        with batch(tmp_path / "out", *arguments) as process:
            until(lambda: len(wire.requests) == 2)
            assert_stops_in_time(process, tmp_path / "out")
        wire.script += REPLIES[1:]
        with batch(tmp_path / "out", *arguments) as process:
            assert process.wait(30) == 0
    (path,) = (path.parent for path in (tmp_path / "out").glob("*/run.json"))
    assert [call.number for call in RunFolder(path).calls()] == [1, 2, 3]


def test_a_batch_can_be_stopped_while_a_grader_is_running(
    tmp_path: Path, until: Until, variant: Callable[..., Path]
) -> None:
    go = tmp_path / "go"
    grader = (
        "import time\nfrom pathlib import Path\ndef grade(submission, private):\n"
        f"    Path({str(go)!r}).touch()\n    time.sleep(1000)\n"
    )
    task, out = variant({"grade.py": grader}), tmp_path / "out"
    with batch(out, "--task", task, "--agent", "baseline") as process:
        until(go.exists)
        assert_stops_in_time(process, out)
    assert not list(out.glob("*/result*.json"))


def test_options_on_the_command_line_apply_to_all_agents_of_a_plan(
    cli: Callable[..., Any], toy: Path, tmp_path: Path
) -> None:
    arguments = ["batch", "--task", toy, "--agent", "tuner", "--steps", 4, "--out", tmp_path / "out"]
    done = cli(*arguments, "--set", "no such option")
    assert done.returncode == 2 and "--set takes NAME=VALUE" in done.stderr
    done = cli(*arguments, "--set", "atlantis=1")
    assert done.returncode == 2 and "atlantis" in done.stderr
    plan = tmp_path / "plan.toml"
    plan.write_text(f"tasks = ['{toy}']\nagents = [{{ name = 'command', options = {{ program = 'a' }} }}]\n")
    assert read_plan(plan, {"options": {"program": "b"}}).agents[0].options == {"program": "b"}
    assert read_plan(plan, {"options": {"other": 1}}).agents[0].options == {"program": "a", "other": 1}


def test_memory_limits_above_the_machine_s_memory_print_a_note(toy: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    for gigabytes in (0.5, 1e6):
        plan = {
            "tasks": [str(toy)],
            "agents": ["nothing"],
            "limits": {"memory_gb": gigabytes},
            "repetitions": 2,
        }
        out = tmp_path / str(gigabytes)
        assert run_batch(out, Plan.model_validate(plan), ["", ""], lines.append, quiet).is_complete
    (note,) = lines
    assert "the scripts of 2 parallel runs may use 2e+06 GB of memory" in note
