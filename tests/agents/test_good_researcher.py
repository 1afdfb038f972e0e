"""Whole runs of the research agent: real edits and executions, and scripted replies that solve the task."""

import json
from pathlib import Path
from typing import Any

import pytest

from mlagentbench.runner.folder import RunFolder

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"
QUICK: tuple[str, ...] = ()  # each takes tens of seconds


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            path.stem,
            marks=[pytest.mark.xdist_group(path.stem)] + [pytest.mark.slow] * (path.stem not in QUICK),
        )
        for path in sorted(TRANSCRIPTS.glob("*.txt"))
    ],
)
def test_the_research_agent_succeeds_with_scripted_replies(
    name: str, cli_process: Any, tmp_path: Path
) -> None:
    script = TRANSCRIPTS / f"{name}.txt"
    command = (
        "run",
        name,
        "--agent",
        "research",
        "--model",
        f"scripted:{script}",
        "--out",
        tmp_path / "run",
        "--json",
    )
    completed = cli_process(*command, timeout=600)
    assert completed.returncode == 0, completed.stderr
    result = json.loads(completed.stdout)
    assert result["success"] and result["ending"] == "submitted" and not result["violations"], result
    replies = script.read_text().count("\n=====\n") + 1
    assert len(list(RunFolder(tmp_path / "run").calls())) == replies  # every reply was used
