"""What readers see of an external program that calls tools: in the terminal, on pages and in logs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_model import FakeModel
from inspect_ai.log import read_eval_log

from mlagentbench.adapters.inspect.logs import write_log
from mlagentbench.agents.command import Command
from mlagentbench.analysis.runs import Run, read_runs
from mlagentbench.pages.viewer.run_page import write_run_page
from mlagentbench.process.findings import collect_findings
from mlagentbench.records import AgentSpec, Call, Limits, Reply, ToolCall
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import execute_run
from mlagentbench.runner.setup import Setup

# A coding agent with two tools, in a page.
AGENT = """
import json, os, subprocess, urllib.request

def ask(messages):
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
        for name in ("bash", "write")
    ]
    body = json.dumps({"model": "any", "messages": messages, "tools": tools}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]

def use(name, arguments):
    if name == "bash":
        done = subprocess.run(arguments["command"], shell=True, capture_output=True, text=True)
        return done.stdout + done.stderr
    open(arguments["file_path"], "w").write(arguments["content"])
    return "written"

messages = [{"role": "user", "content": "Solve it."}]
while True:
    messages.append(ask(messages))
    if not messages[-1].get("tool_calls"):
        break
    for call in messages[-1]["tool_calls"]:
        text = use(call["function"]["name"], json.loads(call["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
print("bye")
"""


def bash(number: int, command: str) -> ToolCall:
    return ToolCall(id=f"b{number}", name="bash", arguments=f'{{"command": "{command}"}}')


def write(number: int, name: str, content: str) -> ToolCall:
    return ToolCall(
        id=f"w{number}", name="write", arguments=f'{{"file_path": "{name}", "content": "{content}"}}'
    )


def script(score: float) -> str:
    return f"print('validation mean absolute error:', {score})"


REPLIES = [
    Reply(text="I write and run it.", calls=(write(1, "train.py", script(2.5)), bash(1, "python train.py"))),
    Reply(text="Once more.", calls=(bash(2, "python train.py"),)),
    Reply(text="Once more.", calls=(bash(3, "python train.py"),)),
    Reply(text="A helper.", calls=(write(2, "helper.py", "x = 1"),)),
    Reply(reasoning="Nothing is left.", text="I reached an error of 1.75."),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, setup: Setup) -> Run:
    """A run of the agent, which makes every mistake that rules can see in its calls."""
    folder = tmp_path_factory.mktemp("external")
    (folder / "program").mkdir()
    (folder / "program" / "main.py").write_text(AGENT)
    agent = Command(command="python /opt/program/main.py", program=str(folder / "program"))
    agent.models = {"main": FakeModel(REPLIES)}
    spec = setup.create_run_spec(AgentSpec(agent="command"), 0, Limits())
    run_folder = RunFolder.create(folder / "run", spec)
    with run_folder.lock():
        execute_run(setup, agent, run_folder)
    return read_runs([folder / "run"])[0]


def test_a_step_records_the_thought_the_tool_calls_and_their_results(run: Run) -> None:
    steps = run.steps
    assert [len(step.call.tool_calls) for step in steps] == [0, 2, 1, 1, 1, 0, 0]
    assert steps[0].observation == "[it asks the model]"
    assert (steps[1].call.thought, steps[1].call.tool_calls[1].name) == ("I write and run it.", "bash")
    assert steps[1].observation == (
        "[result of write]\nwritten\n[result of bash]\nvalidation mean absolute error: 2.5\n"
    )
    assert steps[5].call.thought == "Nothing is left.\n\nI reached an error of 1.75."


def test_show_prints_tool_calls_and_results(run: Run, cli: Callable[..., Any]) -> None:
    shown = cli("show", run.folder.path).stdout
    assert "✓ 2  write train.py; bash python train.py" in shown and "error: 2.5" in shown
    step = cli("show", run.folder.path, "--step", 2).stdout
    assert "step 2  write, bash" in step and "bash: command\npython train.py\n" in step


def test_the_page_of_the_run_shows_them(run: Run, tmp_path: Path) -> None:
    write_run_page(run, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<h2>write, bash <code>train.py</code></h2>" in page
    assert "<dt>bash: command</dt><dd>python train.py</dd>" in page


def test_findings_follow_from_the_tool_calls(run: Run) -> None:
    sentences = {finding.kind: finding for finding in collect_findings(run)}
    repeated = sentences["repeated-action"]
    assert repeated.steps == (3, 4) and "'bash python train.py' ran 2 times" in repeated.sentence
    assert "helper.py was changed in step 5" in sentences["unexecuted-edit"].sentence
    assert "1.75" in sentences["unsupported-claim"].sentence


def test_inspect_gets_one_message_for_each_call_and_each_result(run: Run, tmp_path: Path) -> None:
    write_log(run.folder.path, tmp_path / "run.eval")
    log = read_eval_log(str(tmp_path / "run.eval"), resolve_attachments=True)
    sample = (log.samples or [])[0]
    assistant, written, printed = sample.messages[3:6]
    assert [call.function for call in assistant.tool_calls] == ["write", "bash"]  # type: ignore[union-attr]
    assert assistant.tool_calls[1].arguments == {"command": "python train.py"}  # type: ignore[union-attr, index]
    assert (written.text, printed.text) == (
        "[result of write]\nwritten",
        "[result of bash]\nvalidation mean absolute error: 2.5\n",
    )
    tools = [event.function for event in sample.events if event.event == "tool"]
    assert tools == ["command", "write", "bash", "bash", "bash", "write", "command", "final_answer"]


@pytest.mark.parametrize("calls", [None, 5, "x", [1], [{"name": "bash"}], [{"id": 1}]])
def test_a_damaged_list_of_tool_calls_is_ignored(calls: Any) -> None:
    assert Call(action="Command", args={"turn": 1, "calls": calls}).tool_calls == ()
