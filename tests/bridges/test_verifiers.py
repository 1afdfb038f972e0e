"""Evaluations by verifiers: its command line, its bash agent, a model with native tool calls."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from api_formats import Completion
from fake_provider import FakeProvider, RecordedRequest, ScriptedReply

from mlagentbench.adapters.verifiers.relay import PortRelay
from mlagentbench.adapters.verifiers.runtime import read_dependencies
from mlagentbench.preparation.prepare import prepare_data
from mlagentbench.runner.folder import RunFolder
from mlagentbench.system.progress import ignore_progress
from mlagentbench.task import Task

SOLVE = "seq 0 9 | sed 's/.*/&,&/; 1i id,value' > submission.csv"
Evaluate = Callable[..., list[dict[str, Any]]]


class Policy(FakeProvider):
    """Calls bash with one command in every conversation, and then ends it; keeps what the tool returned."""

    def __init__(self, command: str) -> None:
        super().__init__()
        self.command, self.outputs = command, []

    def next_reply(self, request: RecordedRequest) -> ScriptedReply:
        results = [message for message in request.body["messages"] if message["role"] == "tool"]
        if results:
            self.outputs.append(str(results[-1]["content"]))
            return Completion("done")
        return Completion(calls=(("bash", {"command": self.command}),))


@pytest.fixture
def evaluate(tmp_path: Path) -> Evaluate:
    """Runs vf-eval with a policy, and returns the traces that it wrote."""

    def run_eval(policy: Policy, tasks: list[str], *options: str) -> list[dict[str, Any]]:
        command = [
            *(
                Path(sys.executable).with_name("vf-eval"),
                "mlagentbench-verifiers",
                "-m",
                "wire-1",
                "--no-push",
            ),
            *("--client.base-url", f"{policy.url}/v1", "--client.api-key-var", "POLICY_KEY"),
            *("--env.taskset.tasks", json.dumps(tasks), "--env.taskset.runs", tmp_path / "runs"),
            *("-o", tmp_path / "out", *options),
        ]
        environment = {**os.environ, "POLICY_KEY": "key"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        (traces,) = (tmp_path / "out").rglob("traces.jsonl")
        return [json.loads(line) for line in traces.read_text().splitlines()]

    return run_eval


def find_traces(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The traces of a recorded episode."""
    return record.get("traces", [record])


def test_episodes_are_rewarded_by_our_grader_and_are_run_folders(evaluate, toy, tmp_path, cli):
    with Policy(SOLVE) as policy:
        records = evaluate(policy, [str(toy)], "-r", "3")
    traces = [trace for record in records for trace in find_traces(record)]
    assert [trace["rewards"]["verdict"]["score"] for trace in traces] == [1, 1, 1]
    assert {trace["metrics"]["score"] for trace in traces} == {0}
    runs = sorted((tmp_path / "runs").iterdir())
    assert len(runs) == 3
    folder = RunFolder(runs[0])
    assert (folder.result.agent, folder.result.model, folder.result.success) == ("verifiers", "wire-1", True)
    assert folder.result.ending == "submitted" and not folder.result.violations
    assert [step.call.action for step in folder.steps()] == ["Outside Work", "Final Answer"]
    assert folder.steps()[0].call.args["record"] in {trace["id"] for trace in traces}
    assert cli("verify", runs[0]).returncode == 0


def test_many_episodes_run_at_once(evaluate, toy, tmp_path):
    with Policy(SOLVE) as policy:
        records = evaluate(policy, [str(toy)], "-r", "8", "-c", "8")
    rewards = [trace["rewards"]["verdict"]["score"] for record in records for trace in find_traces(record)]
    assert rewards == [1] * 8
    endings = [RunFolder(path).result.ending for path in (tmp_path / "runs").iterdir()]
    assert endings == ["submitted"] * 8


def test_three_tasks_are_evaluated_by_one_command(evaluate, tmp_path):
    tasks = ["house-price", "spaceship-titanic", "vectorization"]
    with Policy("python train.py") as policy:
        records = evaluate(policy, tasks)
    traces = [trace for record in records for trace in find_traces(record)]
    assert [trace["metrics"]["valid"] for trace in traces] == [1, 1, 1]
    results = [RunFolder(path).result for path in (tmp_path / "runs").iterdir()]
    assert sorted(result.task for result in results) == tasks


def test_the_answers_are_unreadable_from_inside(evaluate, toy):
    data = prepare_data(Task.load(str(toy)), "open", ignore_progress)
    search = "find / \\( -name answers.csv -o -name seed.json -o -name run.json \\) 2>/dev/null"
    keys = "cat /proc/*/environ | tr '\\0' '\\n' | grep -c KEY"
    attack = f"{search}; cat {data.private}/answers.csv 2>&1; {keys}; id -u"
    with Policy(attack) as policy:
        (record,) = evaluate(policy, [str(toy)])
    (output,) = policy.outputs
    assert output.splitlines() == [
        f"cat: {data.private}/answers.csv: No such file or directory",
        "0",
        "1000",
    ]
    assert find_traces(record)[0]["rewards"]["verdict"]["score"] == 0


def test_a_policy_that_kills_its_program_has_a_reward_and_cannot_void_the_episode(evaluate, toy, tmp_path):
    kill = "for p in $(ls /proc | grep -x '[0-9]*'); do [ $p = 1 ] || [ $p = $$ ] || kill -9 $p; done"
    with Policy(kill) as policy:
        (record,) = evaluate(policy, [str(toy)])
    (trace,) = find_traces(record)
    assert trace["rewards"]["verdict"]["score"] == 0 and not trace["errors"]
    (run,) = (tmp_path / "runs").iterdir()
    assert RunFolder(run).result.ending == "submitted"


def test_only_the_port_of_the_policy_can_be_reached(evaluate, toy):
    with FakeProvider() as other:
        port = other.server_address[1]
        connect = "import socket; socket.create_connection(('{}', {}), 2)"
        attempts = [connect.format("127.0.0.1", port), connect.format("1.1.1.1", 53)]
        with Policy("; ".join(f'python -c "{attempt}" 2>&1 | tail -1' for attempt in attempts)) as policy:
            evaluate(policy, [str(toy)])
    (output,) = policy.outputs
    assert "Connection refused" in output and "unreachable" in output


def test_progress_is_the_reward_on_request(evaluate):
    with Policy("python train.py") as policy:
        (record,) = evaluate(policy, ["house-price"], "--env.taskset.task.reward", "progress")
    trace = find_traces(record)[0]
    assert trace["rewards"]["verdict"]["score"] == trace["metrics"]["progress"]
    assert abs(trace["metrics"]["progress"]) < 0.1 and trace["metrics"]["valid"] == 1


def test_dependencies_are_pinned_to_what_verifiers_uses():
    script = '# /// script\n# dependencies = ["openai", "mcp==2.0.0"]\n# ///\nprint()\n'
    openai, mcp = read_dependencies(script)
    assert openai.startswith("openai==") and mcp == "mcp==2.0.0"
    assert read_dependencies("print()\n") == []


def test_the_relay_passes_both_directions_and_ends_with_the_connection(tmp_path):
    async def exchange() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.read()).upper())
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        relay = PortRelay(tmp_path)
        name = await relay.open(server.sockets[0].getsockname()[1])
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / name))
        writer.write(b"hello")
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        relay.close()
        server.close()
        return answer

    assert asyncio.run(asyncio.wait_for(exchange(), 20)) == b"HELLO"
