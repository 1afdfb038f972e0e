"""Whole loops with real edits and real executions: the research agent wins, with a model that knows what to say."""

import json
from pathlib import Path
from typing import Any

import pytest

from mlagentbench.runner.folder import RunFolder

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"
QUICK = ("vectorization",)


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
def test_the_research_agent_passes_the_success_line(name: str, cli: Any, tmp_path: Path) -> None:
    script = TRANSCRIPTS / f"{name}.txt"
    given = (
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
    done = cli(*given, timeout=600)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["success"] and result["ending"] == "submitted" and not result["violations"], result
    replies = script.read_text().count("\n=====\n") + 1
    assert len(list(RunFolder(tmp_path / "run").calls())) == replies  # none was left over
