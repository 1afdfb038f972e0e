"""A person at the terminal is a process that is written to."""

import json
import subprocess
import sys
from pathlib import Path

from mlagentbench.runner.folder import RunFolder

WRITE = "Write File\nnote.py\nif True:\n    print('indented')\n\n.\n"


def sit_down(folder: Path, typed: str, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "mlagentbench", *command, "--json"],
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
    )


def test_a_person_works_leaves_and_comes_back(tmp_path: Path, toy: Path) -> None:
    run = str(tmp_path / "run")
    left = sit_down(tmp_path, f"dance\n\n{WRITE}3\n", "run", str(toy), "--agent", "human", "--out", run)
    assert (left.returncode, left.stdout) == (130, "")
    assert "for each id of questions.csv, the id itself" in left.stderr
    assert "No such action: 'dance'" in left.stderr and "Write File" in left.stderr
    assert left.stderr.endswith(f"mlagentbench: stopped; go on with: mlagentbench resume {run}\n")
    steps = RunFolder(Path(run)).steps()
    assert [step.call.action for step in steps] == ["Write File"]
    assert steps[0].call.args == {"file_name": "note.py", "content": "if True:\n    print('indented')\n\n"}

    names = "Execute Script\nnote.py\n\nRequest Help\nWhat now?\nSubmit it.\nInspect Script Lines\nnote.py\n1\nx\n"
    back = sit_down(
        tmp_path, names + "Execute Script\ntrain.py\n\nFinal Answer\nthe starter\n", "resume", run
    )
    assert back.returncode == 0, back.stderr
    result = json.loads(back.stdout)
    assert (result["ending"], result["score"], result["steps"]) == ("submitted", 5.0, 6)
    steps = RunFolder(Path(run)).steps()
    assert steps[1].observation.endswith("indented")
    assert steps[2].observation == "Submit it."
    assert "end_line_number input should be a valid integer" in steps[3].observation
    assert back.stderr.count("File note.py written.") >= 1  # shown again, not asked again
