"""Agents that ask a model, in real runs and resumes with scripted replies."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fake_model import FakeModel

from mlagentbench.agents.act import Act
from mlagentbench.agents.autogpt import Autogpt
from mlagentbench.agents.base import Agent
from mlagentbench.agents.langchain import Langchain
from mlagentbench.agents.react import React
from mlagentbench.agents.research import Research
from mlagentbench.agents.tools import Tools, tool_name
from mlagentbench.agents.tree import Tree
from mlagentbench.errors import PromptTooLong
from mlagentbench.records import AgentSpec, Limits, Reply, Result, ToolCall
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import execute_run
from mlagentbench.runner.setup import Setup

PERFECT = """ids = [line.strip() for line in open("questions.csv")][1:]
open("submission.csv", "w").write("id,value\\n" + "".join(f"{i},{i}\\n" for i in ids))
print("x" * 6000)
print("validation mean absolute error: 0.0")
"""
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("List Files", {"dir_path": "."}),
    ("Understand File", {"file_name": "train.py", "things_to_look_for": "what it guesses"}),
    ("Execute Script", {"script_name": "train.py"}),
    (
        "Edit Script (AI)",
        {"script_name": "train.py", "edit_instruction": "use the id", "save_name": "train.py"},
    ),
    ("Execute Script", {"script_name": "train.py"}),
    ("Append Summary to Research Log", {"content": "the id is the answer"}),
    ("Final Answer", {"final_answer": "each id is its own value"}),
]
ACTION_REPLIES = {"Understand File": ["it guesses 9.5"], "Edit Script (AI)": [f"```python\n{PERFECT}```"]}
CreateAgent = Callable[[], Agent]


def act_reply(action: str, args: dict[str, Any], number: int) -> str:
    return f"Action: {action}\nAction Input: {json.dumps(args)}"


def react_reply(action: str, args: dict[str, Any], number: int) -> str:
    return f"Thought: step {number} is due\n{act_reply(action, args, number)}"


def research_reply(action: str, args: dict[str, Any], number: int) -> str:
    entries = f"Reflection: so far so good\nResearch Plan and Status: plan {number}\nFact Check: none"
    return f"{entries}\n{react_reply(action, args, number)}"


def script_replies(
    reply: Callable[[str, dict[str, Any], int], Any],
    after_step: Callable[[int], list[str]] = lambda number: [],
) -> list[Any]:
    """All replies of a run's model, in order: to the agent, to actions, and to the agent after a step."""
    replies: list[Any] = []
    for number, (action, args) in enumerate(STEPS, 1):
        replies += [reply(action, args, number), *ACTION_REPLIES.get(action, []), *after_step(number)]
    return replies


def notes(number: int) -> list[str]:
    """The fast model's replies to the research agent after a step."""
    return ["a long line of x, error 0.0"] if number == 5 else []


def memory_notes(number: int) -> list[str]:
    if number == len(STEPS):
        return []
    return [*notes(number), f"summary {number}", *([f"recalled {number}"] if number > 3 else [])]


def tool_reply(action: str, args: dict[str, Any], number: int) -> Reply:
    call = ToolCall(id=f"call{number}", name=tool_name(action), arguments=json.dumps(args))
    return Reply(text=f"step {number}", calls=(call,), model="fake")


def autogpt_reply(action: str, args: dict[str, Any], number: int) -> str:
    thoughts = {"text": "so", "reasoning": "because", "plan": "- go on", "criticism": "none"}
    return json.dumps({"thoughts": thoughts, "command": {"name": action, "args": args}})


AGENTS: dict[str, tuple[CreateAgent, list[Any]]] = {
    "act": (Act, script_replies(act_reply)),
    "react": (React, script_replies(react_reply)),
    "research": (Research, script_replies(research_reply, notes)),
    "research with memory": (lambda: Research(memory=True), script_replies(research_reply, memory_notes)),
    "tools": (Tools, script_replies(tool_reply)),
    "langchain": (Langchain, script_replies(tool_reply)),
    "autogpt": (Autogpt, script_replies(autogpt_reply, lambda n: [f"summary {n}"] if n < len(STEPS) else [])),
}


@pytest.fixture
def attempt(setup: Setup, tmp_path: Path) -> Callable[..., Result]:
    """Runs an agent with a model, or resumes its run."""

    def run_agent(agent: Agent, model: FakeModel, name: str = "run", **limits: Any) -> Result:
        agent.models = {"main": model}
        path = tmp_path / name
        if (path / "run.json").is_file():
            folder = RunFolder(path)
        else:
            folder = RunFolder.create(
                path, setup.create_run_spec(AgentSpec(agent="tried"), 0, Limits(**limits))
            )
        with folder.lock():
            folder.rewind()
            return execute_run(setup, agent, folder)

    return run_agent


def record(folder: RunFolder) -> list[str]:
    """All steps and model calls, without durations and memory."""
    steps = [step.model_dump_json(exclude={"seconds", "clock", "execution"}) for step in folder.steps()]
    calls = [call.model_dump_json(exclude={"seconds"}) for call in folder.calls()]
    return [re.sub(r"[\d.]+ s, peak memory \d+ MB", "(measured)", line) for line in steps + calls]


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_reaches_a_perfect_score(
    name: str, attempt: Callable[..., Result], tmp_path: Path
) -> None:
    create, replies = AGENTS[name]
    model = FakeModel(replies)
    result = attempt(create(), model)
    assert (result.ending, result.score, result.success, result.steps) == (
        "submitted",
        0.0,
        True,
        len(STEPS),
    ), result.note
    assert len(model.prompts) == len(replies)
    assert [(s.call.action, s.call.args) for s in RunFolder(tmp_path / "run").steps()] == STEPS


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_killed_at_any_step_resumes_to_the_same_trace(
    name: str, attempt: Callable[..., Result], tmp_path: Path
) -> None:
    create, replies = AGENTS[name]
    attempt(create(), FakeModel(replies))
    folder = RunFolder(tmp_path / "run")
    original = record(folder)
    for cut in range(len(STEPS)):
        text = folder.trace.path.read_bytes()
        ends = [at + 1 for at, byte in enumerate(text) if byte == 10]
        folder.trace.path.write_bytes(text[: ends[cut] - 7])  # killed while the step was being written
        calls = [end for call, end in folder._calls_with_offsets() if call.step <= cut + 1]
        folder.model_calls.truncate(calls[-1] if calls else 0)
        (folder.path / "result.json").unlink()
        result = attempt(create(), FakeModel(replies))
        assert (result.score, result.ending) == (0.0, "submitted"), result.note
        assert record(folder) == original, f"cut in step {cut + 1}"


@pytest.mark.parametrize("agent", [Act, React, Research])
def test_a_reply_in_the_wrong_format_is_answered_with_what_is_missing(
    agent: CreateAgent, attempt: Callable[..., Result], tmp_path: Path
) -> None:
    good = research_reply("Final Answer", {"final_answer": "x"}, 1)
    model = FakeModel(["I would like to look around first.", good])
    assert attempt(agent(), model).steps == 1
    assert [message.role for message in model.prompts[1].messages] == ["system", "user", "assistant", "user"]
    assert (
        "has no" in model.prompts[1].messages[-1].text
        and "Action Input:" in model.prompts[1].messages[-1].text
    )


def test_after_five_unreadable_replies_the_mistake_is_recorded_as_a_step(
    attempt: Callable[..., Result], tmp_path: Path
) -> None:
    model = FakeModel([*["la la la"] * 5, research_reply("Final Answer", {"final_answer": "x"}, 1)])
    result = attempt(Research(), model)
    first, _ = RunFolder(tmp_path / "run").steps()
    assert first.failed and "Available: Append File" in first.observation and result.ending == "submitted"
    assert all(len(prompt.messages) <= 4 for prompt in model.prompts)


def test_format_mistakes_leave_the_prompt_after_a_good_step(attempt: Callable[..., Result]) -> None:
    look = research_reply("List Files", {"dir_path": "."}, 1)
    done = research_reply("Final Answer", {"final_answer": "x"}, 1)
    model = FakeModel([*["la la la"] * 5, look, done])
    attempt(Research(), model)
    assert "no action could be understood" in model.prompts[-2].messages[1].text
    assert "no action could be understood" not in model.prompts[-1].messages[1].text


def test_a_prompt_that_is_too_long_is_shortened(attempt: Callable[..., Result]) -> None:
    write = react_reply("Write File", {"file_name": "a.txt", "content": "y" * 9000}, 1)
    too_long = PromptTooLong("8,000 tokens at most")
    model = FakeModel([write, too_long, too_long, react_reply("Final Answer", {"final_answer": "x"}, 2)])
    assert attempt(React(), model).ending == "submitted"
    sizes = [len(prompt.messages[1].text) for prompt in model.prompts[1:]]
    assert sizes[0] > sizes[1] > sizes[2]


def test_the_prompt_holds_the_plan_and_only_the_last_three_steps(
    attempt: Callable[..., Result],
) -> None:
    looks = [research_reply("List Files", {"dir_path": "."}, number) for number in range(1, 8)]
    model = FakeModel([*looks, research_reply("Final Answer", {"final_answer": "x"}, 8)])
    attempt(Research(), model)
    shown = model.prompts[-1].messages[1].text
    assert "Research Plan and Status, as you left it:\nplan 7" in shown
    assert [number for number in range(1, 8) if f"Step {number}\n" in shown] == [5, 6, 7]
    assert len(shown) < len(model.prompts[4].messages[1].text) + 50


def test_the_fast_model_summarizes_a_long_observation(attempt: Callable[..., Result]) -> None:
    create, replies = AGENTS["research"]
    model = FakeModel(replies)
    attempt(create(), model)
    summary_prompt = next(p for p in model.prompts if "received a long observation" in p.messages[0].text)
    after = model.prompts[model.prompts.index(summary_prompt) + 1].messages[1].text
    assert "Observation: a long line of x, error 0.0" in after and "xxxxxxxx" not in after


def test_memory_retrieves_steps_that_are_no_longer_in_the_prompt(attempt: Callable[..., Result]) -> None:
    create, replies = AGENTS["research with memory"]
    model = FakeModel(replies)
    attempt(create(), model)
    last = model.prompts[-1].messages[1].text
    assert "From your research log:\nrecalled 6" in last and "Step 1\n" not in last
    asked = [p.messages[0].text for p in model.prompts if "The current plan: plan 6" in p.messages[0].text]
    assert "Step 1: summary 1\n\nStep 2: summary 2" in asked[0]


def test_prompts_stay_bounded_as_steps_grow(attempt: Callable[..., Result]) -> None:
    writes = [
        research_reply("Write File", {"file_name": f"{n}.txt", "content": "z" * 30_000}, n)
        for n in range(1, 31)
    ]
    model = FakeModel([*writes, research_reply("Final Answer", {"final_answer": "x"}, 31)])
    attempt(Research(), model)
    sizes = [sum(len(m.text) for m in prompt.messages) for prompt in model.prompts]
    assert max(sizes[5:]) == pytest.approx(sizes[5], rel=0.02)


def test_running_an_agent_without_the_model_it_needs_is_a_usage_error(
    cli: Any, toy: Path, tmp_path: Path
) -> None:
    done = cli("run", toy, "--agent", "react", "--out", tmp_path / "run")
    assert done.returncode == 2 and "The agent react needs a model. Pass --model NAME" in done.stderr


def test_options_reach_the_agent_and_wrong_ones_are_usage_errors(cli: Any, toy: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("\n=====\n".join(script_replies(research_reply, memory_notes)))
    command = ("run", toy, "--agent", "research", "--model", f"scripted:{script}", "--out", tmp_path / "run")
    done = cli(*command, "--set", "memory=true", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["success"], done.stderr
    assert RunFolder(tmp_path / "run").spec.options == {"memory": True}
    for option, message in [
        ("mood=good", "has no option 'mood'"),
        ("memory=2", "must be a bool, not 2"),
        ("memory", "has no '='"),
    ]:
        done = cli(*command, "--set", option)
        assert done.returncode == 2 and message in done.stderr


def test_autogpt_answers_a_bad_command_with_the_format_and_keeps_a_summary(
    attempt: Callable[..., Result],
) -> None:
    done = autogpt_reply("Final Answer", {"final_answer": "x"}, 2)
    look = autogpt_reply("List Files", {"dir_path": "."}, 1)
    model = FakeModel(
        ["no json", '{"thoughts": {}}', autogpt_reply("Dance", {}, 1), look, "there are files", done]
    )
    assert attempt(Autogpt(), model).steps == 2
    asked = [prompt.messages[-1].text for prompt in model.prompts]
    assert (
        "cannot be read" in asked[1]
        and "has no command" in asked[2]
        and "No such command: 'Dance'" in asked[3]
    )
    assert "What you remember:\nthere are files" in asked[5]


def test_tools_runs_all_calls_of_a_reply_and_answers_each(attempt: Callable[..., Result]) -> None:
    calls = tuple(ToolCall(id=str(n), name="list_files", arguments='{"dir_path": "."}') for n in range(2))
    model = FakeModel(
        [Reply(calls=calls), "I am done.", tool_reply("Final Answer", {"final_answer": "x"}, 3)]
    )
    assert attempt(Tools(), model).steps == 3
    roles = [message.role for message in model.prompts[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert [message.answers for message in model.prompts[-1].messages[3:5]] == ["0", "1"]
    assert {"edit_script_ai", "execute_script"} <= {tool.name for tool in model.prompts[0].tools}


@pytest.mark.parametrize(("name", "arguments"), [("dance", "{}"), ("write_file", "{:}"), ("write_file", "")])
def test_an_invalid_tool_call_is_answered_with_an_error(
    attempt: Callable[..., Result], tmp_path: Path, name: str, arguments: str
) -> None:
    invalid = Reply(calls=(ToolCall(id="1", name=name, arguments=arguments),))
    model = FakeModel([invalid, tool_reply("Final Answer", {"final_answer": "x"}, 2)])
    assert attempt(Tools(), model).ending == "submitted"
    assert RunFolder(tmp_path / "run").steps()[0].failed
    assert model.prompts[1].messages[-1].text.startswith("Error: ")


def test_tools_drops_old_messages_of_a_long_conversation(attempt: Callable[..., Result]) -> None:
    writes = [
        tool_reply("Write File", {"file_name": f"{n}.txt", "content": "z" * 9_000}, n) for n in range(20)
    ]
    model = FakeModel([*writes, tool_reply("Final Answer", {"final_answer": "x"}, 21)])
    attempt(Tools(), model)
    messages = model.prompts[-1].messages
    # No answer is kept without its call.
    assert messages[2].role == "assistant" and messages[3].answers == messages[2].calls[0].id
    assert sum(len(call.arguments) for message in messages for call in message.calls) < 50_000


def script_reply(guess: str) -> str:
    return f"I try {guess}.\n```python\n{PERFECT.replace('{i},{i}', '{i},' + guess).replace('0.0', guess)}```"


def test_tree_fixes_failures_improves_the_best_script_and_submits_it(
    attempt: Callable[..., Result], tmp_path: Path
) -> None:
    model = FakeModel(
        [
            "Draft.\n```python\n1 / 0\n```",
            script_reply("7"),  # fixed
            script_reply("8"),
            "I have no idea.```",
            script_reply("3"),
            script_reply("5"),
        ]
    )
    result = attempt(Tree(drafts=2), model, steps=17)
    steps = RunFolder(tmp_path / "run").steps()
    asked = [prompt.messages[1].text for prompt in model.prompts]
    assert (
        "ZeroDivisionError" in asked[1] and "differs from theirs" in asked[2] and "I try 7. → 7" in asked[2]
    )
    assert "validation score of 5" in asked[3] and "validation score of 3" in asked[5]
    assert (result.ending, steps[-1].call.args) == (
        "submitted",
        {"final_answer": "best validation score: 3"},
    )
    assert (
        steps[-2].call.action == "Execute Script"
        and "validation mean absolute error: 3" in steps[-2].observation
    )


def test_tree_resumes_to_the_same_trace(attempt: Callable[..., Result], tmp_path: Path) -> None:
    replies = [
        "Draft.\n```python\n1 / 0\n```",
        script_reply("7"),
        script_reply("8"),
        script_reply("3"),
        script_reply("5"),
    ]
    attempt(Tree(drafts=2), FakeModel(replies), steps=15)
    folder = RunFolder(tmp_path / "run")
    original = record(folder)
    text = folder.trace.path.read_bytes().splitlines(keepends=True)
    folder.trace.path.write_bytes(b"".join(text[:8]))
    (folder.path / "result.json").unlink()
    assert attempt(Tree(drafts=2), FakeModel(replies)).ending == "submitted"
    assert record(folder) == original


@pytest.mark.slow
def test_an_agent_killed_repeatedly_at_random_moments_ends_the_same(toy: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("\n=====\n".join(script_replies(research_reply, memory_notes)))
    harness = [sys.executable, "-m", "mlagentbench"]
    run = [*harness, "run", toy, "--agent", "research", "--model", f"scripted:{script}"]
    run += ["--set", "memory=true", "--out"]
    subprocess.run([*run, tmp_path / "undisturbed"], check=True, capture_output=True)
    out, random = tmp_path / "run", Random(1)

    def next_command() -> list[Any]:
        return [*harness, "resume", out] if (out / "run.json").is_file() else [*run, out]

    for _ in range(8):
        process = subprocess.Popen(next_command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(random.uniform(0.3, 1.2))
        process.kill()
        process.wait()
    if not (out / "result.json").is_file():
        subprocess.run(next_command(), check=True, capture_output=True)
    assert record(RunFolder(out)) == record(RunFolder(tmp_path / "undisturbed"))
    result = RunFolder(out).result
    assert result and (result.score, result.ending) == (0.0, "submitted")
