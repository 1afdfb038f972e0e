import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import UsageError
from mlagentbench.records import Call, Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.runner.verify import verify_run

Play = Callable[..., Result]
ROWS = "id,value\n" + "".join(f"{n},{n + 0.5}\n" for n in range(10))


def act(env: Environment) -> None:
    for content in ("id,value\n", ROWS.replace(".5", ".5e0").replace("0,0.5e0", "0,30.5"), ROWS):
        env.step(Call(action="Write File", args={"file_name": "submission.csv", "content": content}))
        env.step(Call(action="List Files"))
    env.step(Call(action="Write File", args={"file_name": "big.txt", "content": "text " * 5000}))
    env.step(Call(action="Execute Script", args={"script_name": "/workspace/nothing.py"}))
    env.step(Call(action="Final Answer", args={"final_answer": ""}))


FAST_GRADER = """
from mlagentbench.errors import InvalidSubmission


def grade(submission, private):
    rows = [line.split(",") for line in submission.read_text().split()[1:]]
    if len(rows) != 10:
        raise InvalidSubmission("ten rows are needed")
    return sum(abs(float(value) - int(id)) for id, value in rows) / 10
"""


@pytest.fixture
def setup(variant: Callable[..., Path]) -> Setup:
    """The toy task with a grader that imports nothing slow."""
    return prepare_setup(
        str(variant({"grade.py": FAST_GRADER}, "fast-grader")), "open", "bwrap", lambda line: None
    )


@pytest.fixture
def run(play: Play, tmp_path: Path, setup: Setup) -> RunFolder:
    assert play(act, setup=setup).success
    return RunFolder(tmp_path / "run")


def failures(run: RunFolder, setup: Setup) -> dict[str, str]:
    return {check.what: check.detail for check in verify_run(RunFolder(run.path), setup) if not check.holds}


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_an_unchanged_run_passes_and_every_single_edit_of_it_fails(run: RunFolder, setup: Setup) -> None:
    """One run for all the edits, each of which is undone: grading is the slow part."""
    assert failures(run, setup) == {}
    results = run.path / "result.json"
    original = results.read_bytes()
    for name, value in {
        "score": 0.25,
        "success": False,
        "improvement": 0.99,
        "p_value": 0.5,
        "steps": 4,
        "agent": "genius",
        "unsandboxed": True,
        "violations": ["made up"],
    }.items():
        edit(results, **{name: value})
        assert f"result.json: {name}" in failures(run, setup), name
        results.write_bytes(original)
    edit(results, ending="fault")  # so that it is not graded again
    assert {"result.json: score", "result.json: success"} <= failures(run, setup).keys()
    edit(results, ending="steps")
    assert "the ending matches the recorded steps" in failures(run, setup)
    results.write_bytes(original)
    assert failures(run, setup) == {}


def test_a_changed_record_fails(run: RunFolder, setup: Setup) -> None:
    trace, manifest = run.trace.path, run.path / "snapshots" / "manifest.jsonl"
    lines, states = trace.read_bytes().splitlines(keepends=True), manifest.read_bytes()
    trace.write_bytes(b"".join(lines).replace(b"List Files", b"Read File", 1))
    assert "result.json: trace" in failures(run, setup)
    trace.write_bytes(b"".join(lines[:-1]))
    assert {"result.json: trace", "result.json: steps", "the ending matches the recorded steps"} <= failures(
        run, setup
    ).keys()
    trace.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert "line 3 is step 4" in failures(run, setup)["the record can be read and graded"]
    trace.write_bytes(b"".join(lines[:2]) + b"{damaged}\n" + b"".join(lines[3:]))
    assert "line 3 is damaged" in failures(run, setup)["the record can be read and graded"]
    trace.write_bytes(b"".join(lines))
    early = json.loads(states.splitlines()[1])
    name = early["changed"]["submission.csv"]["hash"]
    manifest.write_bytes(
        states.replace(name.encode(), early["changed"]["submission.csv"]["hash"][::-1].encode())
    )
    assert {"result.json: history", "every stored file matches its hash"} <= failures(run, setup).keys()
    manifest.write_bytes(b"".join(states.splitlines(keepends=True)[:-1]))
    assert {"result.json: history", "result.json: snapshot"} <= failures(run, setup).keys()
    manifest.write_bytes(states)
    assert failures(run, setup) == {}


def test_a_corrupted_or_missing_object_fails(run: RunFolder, setup: Setup) -> None:
    objects = [path for path in (run.path / "snapshots" / "objects").rglob("*") if path.is_file()]
    assert any(path.suffix == ".zst" for path in objects)
    for path in objects:
        content = path.read_bytes()
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:] if content else b"x")
        assert "damaged" in failures_of_store(run, setup), path
        path.unlink()
        assert "missing" in failures_of_store(run, setup), path
        path.write_bytes(content)
    assert failures_of_store(run, setup) == ""


def failures_of_store(run: RunFolder, setup: Setup) -> str:
    return "; ".join(run.open_store(setup.data, writable=False).find_problems())


def test_a_different_baseline_or_task_fails(
    run: RunFolder, setup: Setup, variant: Callable[..., Path]
) -> None:
    other = prepare_setup(
        str(variant({"description.md": "Other words."})), "open", "bwrap", lambda line: None
    )
    assert "the task is the one that the run used" in failures(run, other)
    edit(run.path / "run.json", baseline={"mean": 1e6, "sd": 0.1, "n": 8})
    failed = failures(run, setup)
    assert {"the baseline is the known one", "result.json: baseline"} <= failed.keys()


def test_an_unfinished_run_cannot_be_verified(run: RunFolder, setup: Setup) -> None:
    (run.path / "result.json").unlink()
    with pytest.raises(UsageError, match=r"is not finished\. To continue it: mlagentbench resume"):
        verify_run(run, setup)


SAME = "the agent takes the same steps when the record is replayed"


def scripted_run(cli: Any, toy: Path, tmp_path: Path) -> Path:
    script, out = tmp_path / "script.txt", tmp_path / "run"
    look = 'Thought: look\nAction: List Files\nAction Input: {"dir_path": "."}'
    done = 'Thought: enough\nAction: Final Answer\nAction Input: {"final_answer": "x"}'
    script.write_text(f"{look}\n=====\n{look}\n=====\n{done}")
    cli("run", toy, "--agent", "react", "--model", f"scripted:{script}", "--out", out)
    script.unlink()  # the replay must not need it
    return out


def test_a_language_agent_is_replayed_from_its_record(cli: Any, toy: Path, tmp_path: Path) -> None:
    out = scripted_run(cli, toy, tmp_path)
    checks = {check["what"]: check for check in json.loads(cli("verify", out, "--json").stdout)}
    assert checks[SAME]["holds"] and all(check["holds"] for check in checks.values())


def test_a_record_that_the_agent_cannot_reproduce_fails(cli: Any, toy: Path, tmp_path: Path) -> None:
    out = scripted_run(cli, toy, tmp_path)
    calls = out / "model_calls.jsonl"
    calls.write_text(calls.read_text().replace("Thought: look", "Thought: peek", 1))
    checks = {check["what"]: check for check in json.loads(cli("verify", out, "--json").stdout)}
    assert not checks[SAME]["holds"] and "Replay diverged at step 1" in checks[SAME]["detail"]


def test_an_agent_from_a_file_is_replayed_only_if_it_is_trusted(cli: Any, toy: Path, tmp_path: Path) -> None:
    agent, out, mark = tmp_path / "mine.py", tmp_path / "run", tmp_path / "agent-was-executed"
    agent.write_text(
        "from pathlib import Path\n"
        "from mlagentbench.agents.base import Agent\nfrom mlagentbench.records import Call\n"
        f"class Mine(Agent):\n    def run(self, env):\n        Path({str(mark)!r}).touch()\n"
        "        env.step(Call(action='Final Answer', args={'final_answer': 'x'}))\n"
    )
    cli("run", toy, "--agent", agent, "--out", out)
    mark.unlink()
    assert SAME not in cli("verify", out).stdout and not mark.exists()
    assert f"ok    {SAME}" in cli("verify", out, "--trust-agent").stdout and mark.exists()
