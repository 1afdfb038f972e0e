"""The human agent, as a process whose standard input the test writes."""

import json
import subprocess
import sys
from pathlib import Path

from mlagentbench.runner.folder import RunFolder

WRITE = "Write File\nnote.py\nif True:\n    print('indented')\n\n.\n"


def type_into(folder: Path, typed: str, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "mlagentbench", *command, "--json"],
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
    )


def test_a_person_works_leaves_and_resumes(tmp_path: Path, toy: Path) -> None:
    run = str(tmp_path / "run")
    first = type_into(tmp_path, f"dance\n\n{WRITE}3\n", "run", str(toy), "--agent", "human", "--out", run)
    assert (first.returncode, first.stdout) == (130, "")
    assert "for each id of questions.csv, the id itself" in first.stderr
    assert "No such action: 'dance'" in first.stderr and "Write File" in first.stderr
    assert first.stderr.endswith(f"mlagentbench: stopped; continue with: mlagentbench resume {run}\n")
    steps = RunFolder(Path(run)).steps()
    assert [step.call.action for step in steps] == ["Write File"]
    assert steps[0].call.args == {"file_name": "note.py", "content": "if True:\n    print('indented')\n\n"}

    typed = "Execute Script\nnote.py\n\nRequest Help\nWhat now?\nSubmit it.\n"
    typed += "Inspect Script Lines\nnote.py\n1\nx\n"
    second = type_into(
        tmp_path, typed + "Execute Script\ntrain.py\n\nFinal Answer\nthe starter\n", "resume", run
    )
    assert second.returncode == 0, second.stderr
    result = json.loads(second.stdout)
    assert (result["ending"], result["score"], result["steps"]) == ("submitted", 5.0, 6)
    steps = RunFolder(Path(run)).steps()
    assert steps[1].observation.endswith("indented")
    assert steps[2].observation == "Submit it."
    assert "end_line_number input should be a valid integer" in steps[3].observation
    assert second.stderr.count("File note.py written.") >= 1  # replayed, not asked for again
