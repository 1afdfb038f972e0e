"""Grades a workspace inside Harbor's verifier environment, the only place of a trial that has the answers.

Usage: python -m mlagentbench.adapters.harbor.verify TESTS WORKSPACE OUT
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from mlagentbench.grading import grader_process
from mlagentbench.grading.verdict import judge_score
from mlagentbench.records import RunSpec
from mlagentbench.workspace.files import Workspace

REWARD_FILE, RESULT_FILE = "reward.json", "result.json"
REWARD_KEYS = ("success", "progress", "improvement", "score", "valid")  # also in reward.json, if known


def main(tests: Path, workspace: Path, out: Path) -> None:
    """Write the rewards and the details of the grade to `out`.

    If the grader crashes, there is no reward file: Harbor then reports an error, not a reward of zero.

    Args:
        tests: The exported folder `tests`.
        workspace: The workspace as the agent left it.
        out: The folder for the two files.
    """
    settings = json.loads((tests / "settings.json").read_text())
    spec = RunSpec.model_validate_json((tests / "run.json").read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        submitted = Path(folder, "workspace")
        submitted.mkdir()
        Workspace(submitted).copy_in(workspace)  # without links, which could lead to the answers
        grade = _grade(tests, submitted, settings["submission"], Path(folder))
    result = {**grade, **_judge(grade.get("score"), spec)}
    rewards = {key: float(result[key]) for key in REWARD_KEYS if result.get(key) is not None}
    # An invalid submission has no progress, and its reward is zero.
    rewards = {"reward": rewards.get(settings["reward"], 0.0), **rewards}
    (out / RESULT_FILE).write_text(json.dumps(result, indent=1))
    (out / REWARD_FILE).write_text(json.dumps(rewards))
    print(json.dumps(result, indent=1))


def _grade(tests: Path, submitted: Path, submission: str, folder: Path) -> dict[str, Any]:
    path = submitted / submission
    if not path.exists():
        return {"invalid": f"{submission} is missing"}
    if submission != "." and not path.is_file():
        return {"invalid": f"{submission} is not a file"}
    (earlier := folder / "earlier").mkdir()  # Harbor keeps no record of scripts that ran before
    answer = folder / "answer.json"
    grader_process.main(tests / "task", path, submitted, tests / "private", answer, earlier)
    report: dict[str, Any] = json.loads(answer.read_text())
    return {key: value for key, value in report.items() if key != "earlier"}


def _judge(score: float | None, spec: RunSpec) -> dict[str, Any]:
    if score is None:
        return {"valid": False, "success": False}
    verdict = judge_score(score, spec)
    return {"valid": True, **(verdict.model_dump(mode="json") if verdict else {})}


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
