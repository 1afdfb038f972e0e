"""Agents that ask a model, played through with scripted ones: real runs, real resumes."""

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
ANSWERS = {"Understand File": ["it guesses 9.5"], "Edit Script (AI)": [f"```python\n{PERFECT}```"]}
Make = Callable[[], Agent]


def acting(action: str, args: dict[str, Any], number: int) -> str:
    return f"Action: {action}\nAction Input: {json.dumps(args)}"


def thinking(action: str, args: dict[str, Any], number: int) -> str:
    return f"Thought: step {number} is due\n{acting(action, args, number)}"


def researching(action: str, args: dict[str, Any], number: int) -> str:
    entries = f"Reflection: so far so good\nResearch Plan and Status: plan {number}\nFact Check: none"
    return f"{entries}\n{thinking(action, args, number)}"


def lines(
    said: Callable[[str, dict[str, Any], int], Any], after: Callable[[int], list[str]] = lambda n: []
) -> list[Any]:
    """All that the one model of a run says, in its order: replies, what actions ask, what the agent notes."""
    found: list[Any] = []
    for number, (action, args) in enumerate(STEPS, 1):
        found += [said(action, args, number), *ANSWERS.get(action, []), *after(number)]
    return found


def notes(number: int) -> list[str]:
    """What the research agent asks the fast model after a step."""
    return ["a long line of x, error 0.0"] if number == 5 else []


def remembered(number: int) -> list[str]:
    if number == len(STEPS):
        return []
    return [*notes(number), f"summary {number}", *([f"recalled {number}"] if number > 3 else [])]


def calling(action: str, args: dict[str, Any], number: int) -> Reply:
    call = ToolCall(id=f"call{number}", name=tool_name(action), arguments=json.dumps(args))
    return Reply(text=f"step {number}", calls=(call,), model="parrot")


def commanding(action: str, args: dict[str, Any], number: int) -> str:
    thoughts = {"text": "so", "reasoning": "because", "plan": "- go on", "criticism": "none"}
    return json.dumps({"thoughts": thoughts, "command": {"name": action, "args": args}})


AGENTS: dict[str, tuple[Make, list[Any]]] = {
    "act": (Act, lines(acting)),
    "react": (React, lines(thinking)),
    "research": (Research, lines(researching, notes)),
    "research with memory": (lambda: Research(memory=True), lines(researching, remembered)),
    "tools": (Tools, lines(calling)),
    "langchain": (Langchain, lines(calling)),
    "autogpt": (Autogpt, lines(commanding, lambda n: [f"summary {n}"] if n < len(STEPS) else [])),
}


@pytest.fixture
def attempt(setup: Setup, tmp_path: Path) -> Callable[..., Result]:
    """A run of an agent with a parrot, or its continuation."""

    def go(agent: Agent, parrot: FakeModel, name: str = "run", **limits: Any) -> Result:
        agent.models = {"main": parrot}
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

    return go


def story(folder: RunFolder) -> list[str]:
    """What was done and seen, and what models were asked and said; how long scripts took is left out."""
    steps = [step.model_dump_json(exclude={"seconds", "clock", "execution"}) for step in folder.steps()]
    calls = [call.model_dump_json(exclude={"seconds"}) for call in folder.calls()]
    return [re.sub(r"[\d.]+ s, peak memory \d+ MB", "so long", line) for line in steps + calls]


@pytest.mark.parametrize("name", AGENTS)
def test_it_works_its_way_to_a_perfect_score(
    name: str, attempt: Callable[..., Result], tmp_path: Path
) -> None:
    make, said = AGENTS[name]
    parrot = FakeModel(said)
    result = attempt(make(), parrot)
    assert (result.ending, result.score, result.success, result.steps) == (
        "submitted",
        0.0,
        True,
        len(STEPS),
    ), result.note
    assert len(parrot.prompts) == len(said)
    assert [(s.call.action, s.call.args) for s in RunFolder(tmp_path / "run").steps()] == STEPS


@pytest.mark.parametrize("name", AGENTS)
def test_killed_at_any_step_it_resumes_to_the_same_trace(
    name: str, attempt: Callable[..., Result], tmp_path: Path
) -> None:
    make, said = AGENTS[name]
    attempt(make(), FakeModel(said))
    folder = RunFolder(tmp_path / "run")
    whole = story(folder)
    for cut in range(len(STEPS)):
        text = folder.trace.path.read_bytes()
        ends = [at + 1 for at, byte in enumerate(text) if byte == 10]
        folder.trace.path.write_bytes(text[: ends[cut] - 7])  # in the middle of writing the step down
        calls = [end for call, end in folder._calls_with_offsets() if call.step <= cut + 1]
        folder.model_calls.truncate(calls[-1] if calls else 0)
        (folder.path / "result.json").unlink()
        result = attempt(make(), FakeModel(said))
        assert (result.score, result.ending) == (0.0, "submitted"), result.note
        assert story(folder) == whole, f"cut in step {cut + 1}"


@pytest.mark.parametrize("agent", [Act, React, Research])
def test_a_reply_in_the_wrong_form_is_answered_with_what_is_missing(
    agent: Make, attempt: Callable[..., Result], tmp_path: Path
) -> None:
    good = researching("Final Answer", {"final_answer": "x"}, 1)
    parrot = FakeModel(["I would like to look around first.", good])
    assert attempt(agent(), parrot).steps == 1
    assert [message.role for message in parrot.prompts[1].messages] == ["system", "user", "assistant", "user"]
    assert (
        "has no" in parrot.prompts[1].messages[-1].text
        and "Action Input:" in parrot.prompts[1].messages[-1].text
    )


def test_after_five_replies_that_nobody_understands_the_mistake_is_a_step(
    attempt: Callable[..., Result], tmp_path: Path
) -> None:
    parrot = FakeModel([*["la la la"] * 5, researching("Final Answer", {"final_answer": "x"}, 1)])
    result = attempt(Research(), parrot)
    first, _ = RunFolder(tmp_path / "run").steps()
    assert first.failed and "Available: Append File" in first.observation and result.ending == "submitted"
    assert all(len(prompt.messages) <= 4 for prompt in parrot.prompts)


def test_mistakes_in_form_leave_the_view_once_a_good_step_followed(attempt: Callable[..., Result]) -> None:
    look = researching("List Files", {"dir_path": "."}, 1)
    done = researching("Final Answer", {"final_answer": "x"}, 1)
    parrot = FakeModel([*["la la la"] * 5, look, done])
    attempt(Research(), parrot)
    assert "no action could be understood" in parrot.prompts[-2].messages[1].text
    assert "no action could be understood" not in parrot.prompts[-1].messages[1].text


def test_what_the_model_cannot_take_is_shown_shorter(attempt: Callable[..., Result]) -> None:
    write = thinking("Write File", {"file_name": "a.txt", "content": "y" * 9000}, 1)
    too_long = PromptTooLong("8,000 tokens at most")
    parrot = FakeModel([write, too_long, too_long, thinking("Final Answer", {"final_answer": "x"}, 2)])
    assert attempt(React(), parrot).ending == "submitted"
    sizes = [len(prompt.messages[1].text) for prompt in parrot.prompts[1:]]
    assert sizes[0] > sizes[1] > sizes[2]


def test_the_plan_is_carried_and_only_the_last_three_steps_are_in_view(
    attempt: Callable[..., Result],
) -> None:
    looks = [researching("List Files", {"dir_path": "."}, number) for number in range(1, 8)]
    parrot = FakeModel([*looks, researching("Final Answer", {"final_answer": "x"}, 8)])
    attempt(Research(), parrot)
    shown = parrot.prompts[-1].messages[1].text
    assert "Research Plan and Status, as you left it:\nplan 7" in shown
    assert [number for number in range(1, 8) if f"Step {number}\n" in shown] == [5, 6, 7]
    assert len(shown) < len(parrot.prompts[4].messages[1].text) + 50


def test_a_long_observation_is_summarised_by_the_fast_model(attempt: Callable[..., Result]) -> None:
    make, said = AGENTS["research"]
    parrot = FakeModel(said)
    attempt(make(), parrot)
    summarised = next(p for p in parrot.prompts if "received a long observation" in p.messages[0].text)
    after = parrot.prompts[parrot.prompts.index(summarised) + 1].messages[1].text
    assert "Observation: a long line of x, error 0.0" in after and "xxxxxxxx" not in after


def test_memory_brings_back_what_has_left_the_view(attempt: Callable[..., Result]) -> None:
    make, said = AGENTS["research with memory"]
    parrot = FakeModel(said)
    attempt(make(), parrot)
    last = parrot.prompts[-1].messages[1].text
    assert "From your research log:\nrecalled 6" in last and "Step 1\n" not in last
    asked = [
        p.messages[0].text for p in parrot.prompts if "The current plan: plan 6" in p.messages[0].text
    ]
    assert "Step 1: summary 1\n\nStep 2: summary 2" in asked[0]


def test_prompts_stay_bounded_as_steps_grow(attempt: Callable[..., Result]) -> None:
    writes = [
        researching("Write File", {"file_name": f"{n}.txt", "content": "z" * 30_000}, n) for n in range(1, 31)
    ]
    parrot = FakeModel([*writes, researching("Final Answer", {"final_answer": "x"}, 31)])
    attempt(Research(), parrot)
    sizes = [sum(len(m.text) for m in prompt.messages) for prompt in parrot.prompts]
    assert max(sizes[5:]) == pytest.approx(sizes[5], rel=0.02)


def test_an_agent_that_needs_a_model_says_so_at_once(cli: Any, toy: Path, tmp_path: Path) -> None:
    done = cli("run", toy, "--agent", "react", "--out", tmp_path / "run")
    assert done.returncode == 2 and "The agent react needs a model. Pass --model NAME" in done.stderr


def test_options_reach_the_agent_and_wrong_ones_are_a_sentence(cli: Any, toy: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("\n=====\n".join(lines(researching, remembered)))
    given = ("run", toy, "--agent", "research", "--model", f"scripted:{script}", "--out", tmp_path / "run")
    done = cli(*given, "--set", "memory=true", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["success"], done.stderr
    assert RunFolder(tmp_path / "run").spec.options == {"memory": True}
    for wrong, said in [
        ("mood=good", "has no option 'mood'"),
        ("memory=2", "is a bool"),
        ("memory", "has no ="),
    ]:
        done = cli(*given, "--set", wrong)
        assert done.returncode == 2 and said in done.stderr


def test_autogpt_answers_a_bad_command_with_the_form_and_remembers_by_its_summary(
    attempt: Callable[..., Result],
) -> None:
    done = commanding("Final Answer", {"final_answer": "x"}, 2)
    look = commanding("List Files", {"dir_path": "."}, 1)
    parrot = FakeModel(
        ["no json", '{"thoughts": {}}', commanding("Dance", {}, 1), look, "there are files", done]
    )
    assert attempt(Autogpt(), parrot).steps == 2
    said = [prompt.messages[-1].text for prompt in parrot.prompts]
    assert "cannot be read" in said[1] and "has no command" in said[2] and "No such command: 'Dance'" in said[3]
    assert "What you remember:\nthere are files" in said[5]


def test_tools_does_several_calls_of_one_reply_and_answers_each(attempt: Callable[..., Result]) -> None:
    calls = tuple(ToolCall(id=str(n), name="list_files", arguments='{"dir_path": "."}') for n in range(2))
    parrot = FakeModel([Reply(calls=calls), "I am done.", calling("Final Answer", {"final_answer": "x"}, 3)])
    assert attempt(Tools(), parrot).steps == 3
    roles = [message.role for message in parrot.prompts[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert [message.answers for message in parrot.prompts[-1].messages[3:5]] == ["0", "1"]
    assert {"edit_script_ai", "execute_script"} <= {tool.name for tool in parrot.prompts[0].tools}


@pytest.mark.parametrize(("name", "arguments"), [("dance", "{}"), ("write_file", "{:}"), ("write_file", "")])
def test_a_tool_call_that_makes_no_sense_is_answered_and_not_a_crash(
    attempt: Callable[..., Result], tmp_path: Path, name: str, arguments: str
) -> None:
    odd = Reply(calls=(ToolCall(id="1", name=name, arguments=arguments),))
    parrot = FakeModel([odd, calling("Final Answer", {"final_answer": "x"}, 2)])
    assert attempt(Tools(), parrot).ending == "submitted"
    assert RunFolder(tmp_path / "run").steps()[0].failed
    assert parrot.prompts[1].messages[-1].text.startswith("Error: ")


def test_a_long_talk_of_tools_is_kept_only_as_far_as_there_is_room(attempt: Callable[..., Result]) -> None:
    writes = [calling("Write File", {"file_name": f"{n}.txt", "content": "z" * 9_000}, n) for n in range(20)]
    parrot = FakeModel([*writes, calling("Final Answer", {"final_answer": "x"}, 21)])
    attempt(Tools(), parrot)
    said = parrot.prompts[-1].messages
    assert (
        said[2].role == "assistant" and said[3].answers == said[2].calls[0].id
    )  # no answer without its call
    assert sum(len(call.arguments) for message in said for call in message.calls) < 50_000


def written(guess: str) -> str:
    return f"I try {guess}.\n```python\n{PERFECT.replace('{i},{i}', '{i},' + guess).replace('0.0', guess)}```"


def test_tree_mends_what_fails_improves_the_best_and_submits_it(
    attempt: Callable[..., Result], tmp_path: Path
) -> None:
    parrot = FakeModel(
        [
            "Draft.\n```python\n1 / 0\n```",
            written("7"),  # mended
            written("8"),
            "I have no idea.```",
            written("3"),
            written("5"),
        ]
    )
    result = attempt(Tree(drafts=2), parrot, steps=17)
    steps = RunFolder(tmp_path / "run").steps()
    asked = [prompt.messages[1].text for prompt in parrot.prompts]
    assert "ZeroDivisionError" in asked[1] and "differs from theirs" in asked[2] and "I try 7. → 7" in asked[2]
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
    said = ["Draft.\n```python\n1 / 0\n```", written("7"), written("8"), written("3"), written("5")]
    attempt(Tree(drafts=2), FakeModel(said), steps=15)
    folder = RunFolder(tmp_path / "run")
    whole = story(folder)
    text = folder.trace.path.read_bytes().splitlines(keepends=True)
    folder.trace.path.write_bytes(b"".join(text[:8]))
    (folder.path / "result.json").unlink()
    assert attempt(Tree(drafts=2), FakeModel(said)).ending == "submitted"
    assert story(folder) == whole


def test_killed_again_and_again_at_random_moments_it_comes_to_the_same_end(toy: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("\n=====\n".join(lines(researching, remembered)))
    command = [sys.executable, "-m", "mlagentbench"]
    who = ["--agent", "research", "--model", f"scripted:{script}", "--set", "memory=true"]
    subprocess.run([*command, "run", toy, *who, "--out", tmp_path / "calm"], check=True, capture_output=True)
    out, random = tmp_path / "run", Random(1)
    for _ in range(8):
        deed = ["resume", out] if (out / "run.json").is_file() else ["run", toy, *who, "--out", out]
        child = subprocess.Popen([*command, *deed], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with suppress(subprocess.TimeoutExpired):
            child.wait(random.uniform(0.3, 1.2))
        child.kill()
        child.wait()
    if not (out / "result.json").is_file():
        subprocess.run([*command, "resume", out], check=True, capture_output=True)
    assert story(RunFolder(out)) == story(RunFolder(tmp_path / "calm"))
    done = RunFolder(out).result
    assert done and (done.score, done.ending) == (0.0, "submitted")
