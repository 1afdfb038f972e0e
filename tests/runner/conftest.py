"""Fixtures: batches, agents and models that take milliseconds."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batches import SLOW_SCRIPT, make_plan, quiet

from mlagentbench.runner.batch.batch_status import BatchStatus
from mlagentbench.runner.batch.orchestrator import BatchOutcome, assign_gpus_to_slots, run_batch
from mlagentbench.runner.batch.plan import Plan

AGENT_HEADER = """
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


@pytest.fixture
def run_plan(tmp_path: Path, toy: Path) -> Callable[..., BatchOutcome]:
    """Runs a batch of the toy task in this process."""

    def run(
        plan: Plan | None = None,
        jobs: int = 2,
        out: str = "out",
        show: Callable[[BatchStatus], None] = quiet,
        **keys: Any,
    ) -> BatchOutcome:
        plan = plan or make_plan(**{"tasks": [str(toy)], "agents": ["baseline"], **keys})
        return run_batch(tmp_path / out, plan, assign_gpus_to_slots(jobs, ""), quiet, show)

    return run


@pytest.fixture
def agent(tmp_path: Path) -> Callable[..., str]:
    """Writes an agent file and returns its path."""

    def write(name: str, code: str) -> str:
        path = tmp_path / f"{name}.py"
        path.write_text(AGENT_HEADER + code)
        return str(path)

    return write


@pytest.fixture
def scripted_model(tmp_path: Path) -> Callable[..., str]:
    """Creates a model that writes some files, executes the starter and submits, and returns its name."""

    def write(writes: int, size: int = 5, scripts: int = 1) -> str:
        rng = random.Random(writes)
        calls = [
            ("Write File", {"file_name": f"n{number}", "content": rng.randbytes(size).hex()})
            for number in range(writes)
        ]
        calls += [("Execute Script", {"script_name": "train.py"})] * scripts
        calls.append(("Final Answer", {"final_answer": "done"}))
        replies = [f"Action: {action}\nAction Input: {json.dumps(args)}" for action, args in calls]
        (tmp_path / "script").write_text("\n=====\n".join(replies))
        return f"scripted:{tmp_path / 'script'}"

    return write


@pytest.fixture
def slow_model(tmp_path: Path) -> str:
    """The name of a model that executes a script which takes five seconds."""
    calls = [
        ("Write File", SLOW_SCRIPT),
        ("Execute Script", {"script_name": "slow.py"}),
        ("Final Answer", {"final_answer": ""}),
    ]
    replies = [f"Action: {action}\nAction Input: {json.dumps(args)}" for action, args in calls]
    (tmp_path / "slow").write_text("\n=====\n".join(replies))
    return f"scripted:{tmp_path / 'slow'}"
