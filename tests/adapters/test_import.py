"""Import of logs of the original MLAgentBench: complete, damaged and malicious ones."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import originals
import pytest
from originals import OPTIONS, STEPS, original, step

from mlagentbench.adapters.original.importer import import_logs
from mlagentbench.adapters.original.task_names import KNOWN_TASKS
from mlagentbench.analysis import runs as reports
from mlagentbench.errors import UsageError
from mlagentbench.preparation.prepare import PreparedData, prepare_data
from mlagentbench.records import Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.system.progress import ignore_progress
from mlagentbench.task import Task


@pytest.fixture
def import_log(tmp_path: Path) -> Callable[..., tuple[RunFolder, Result]]:
    """Import one log folder, and open the run."""

    def import_one(log: Path, **options: Any) -> tuple[RunFolder, Result]:
        (result,) = import_logs([log], tmp_path / "runs", progress=ignore_progress, **options)
        return RunFolder(Path(result.folder)), result

    return import_one


def notes(folder: RunFolder) -> str:
    assert folder.spec.imported is not None
    return "\n".join(folder.spec.imported.notes)


def test_a_complete_log_becomes_a_complete_run(tmp_path: Path, import_log: Any) -> None:
    folder, result = import_log(original(tmp_path / "logs" / "1690000000"))
    spec, steps = folder.spec, folder.steps()
    assert (spec.task, spec.edition, spec.agent, spec.model) == (
        "house-price",
        "original",
        "ResearchAgent",
        "gpt-4",
    )
    assert (spec.fast_model, spec.limits.steps, spec.limits.hours) == ("gpt-3.5-turbo", 30, 5.0)
    assert (
        spec.imported and spec.imported.program.startswith("MLAgentBench 0.1") and spec.imported.notes == ()
    )
    assert [step.call.action for step in steps] == [logged["action"]["name"] for logged in STEPS]
    assert steps[0].call.args == {"dir_path": "."} and steps[0].observation == "train.py\n"
    assert (
        steps[1].call.thought
        == "Reflection: reflection 1\nResearch Plan and Status: plan 1\nThought: thought 1"
    )
    assert [step.failed for step in steps] == [False, False, True, False]
    assert [step.clock for step in steps] == [
        20.25,
        50.75,
        51.25,
        60.25,
    ]  # it began 60.25 s before its last step
    assert steps[1].seconds == 30.5 and spec.started == "2023-07-22T04:26:29+00:00"
    assert (result.ending, result.steps, result.seconds, result.tokens) == ("submitted", 4, 60.25, 450)
    assert result.ungraded and result.score is None and not result.success and result.unsandboxed


def test_snapshots_of_every_step_are_imported_and_can_be_compared(tmp_path: Path, import_log: Any) -> None:
    folder, result = import_log(original(tmp_path / "log"))
    store = folder.open_store(writable=False)
    assert store.read_content(0, "train.py") == b"first\n"  # the first action only read files
    assert store.read_content(1, "train.py") == b"first\n"
    assert store.read_content(2, "train.py") == b"second\n"
    assert set(store.state(4)) == {"train.py", "submission.csv"}
    assert "-first\n+second\n" in store.diff(1, 2)
    assert store.find_problems() == [] and result.snapshot == store.tree_hash(4)


def test_model_calls_are_imported_with_their_steps(tmp_path: Path, import_log: Any) -> None:
    folder, _ = import_log(original(tmp_path / "log"))
    calls = [(call.step, call.inside, call.role, call.model) for call in folder.calls()]
    assert calls == [
        (1, False, "main", "gpt-4"),
        (2, True, "edit", "gpt-4"),
        (4, False, "fast", "gpt-3.5-turbo"),
    ]
    first = next(folder.calls())
    assert "Human: What now?" in first.prompt.messages[0].text
    assert first.reply and first.reply.text == "Action: List Files" and first.reply.input_tokens == 120


@pytest.mark.parametrize("fraction", [0.3, 0.6, 0.9])
def test_a_truncated_trace_gives_its_complete_steps(fraction: float, tmp_path: Path, import_log: Any) -> None:
    text = originals.trace(STEPS)
    end = text.index("low_level_steps")
    log = original(tmp_path / "log")
    (log / "env_log" / "trace.json").write_text(text[: int(end * fraction)])
    folder, result = import_log(log)
    complete = len(folder.steps())
    assert 0 < complete < 4 and result.steps == complete
    assert [step.call.action for step in folder.steps()] == [
        logged["action"]["name"] for logged in STEPS[:complete]
    ]
    assert f"trace.json is damaged: {complete} complete steps were read" in notes(folder)
    assert f"snapshots of {4 - complete} further steps were skipped" in notes(folder)


def test_without_a_trace_the_steps_come_from_the_main_log(tmp_path: Path, import_log: Any) -> None:
    log = original(tmp_path / "log")
    (log / "env_log" / "trace.json").unlink()
    folder, result = import_log(log)
    assert [step.call.action for step in folder.steps()] == [logged["action"]["name"] for logged in STEPS]
    assert folder.steps()[1].call.args["edit_instruction"] == "x"
    assert (
        folder.steps()[2].observation.startswith("EnvError:")
        and "thought 2" in folder.steps()[2].call.thought
    )
    assert "trace.json is missing" in notes(folder) and "steps were read from agent_log/main_log" in notes(
        folder
    )
    assert result.seconds == 60.25  # only the total time is known


def test_without_a_saved_state_options_come_from_the_log_and_thoughts_from_the_main_log(
    tmp_path: Path, import_log: Any
) -> None:
    printed = ", ".join(f"{name}={value!r}" for name, value in OPTIONS.items())
    log = originals.write(
        original(tmp_path / "log"), {"log": f"Failed to import\nNamespace({printed})\nmore\n"}
    )
    (log / "agent_log" / "agent_3_3.json").write_text('{"args": {"task": "house-pr')
    folder, _ = import_log(log)
    assert (folder.spec.task, folder.spec.model, folder.spec.agent) == (
        "house-price",
        "gpt-4",
        "ResearchAgent",
    )
    assert "thought 1" in folder.steps()[1].call.thought
    assert "agent_3_3.json is damaged" in notes(folder)


def test_the_thoughts_of_a_langchain_agent_come_from_its_main_log(tmp_path: Path, import_log: Any) -> None:
    log_text = (
        "Answer the following questions.\nAction: the action to take, should be one of [List Files]\n"
        "Action Input: the input to the action\nObservation: the result of the action\n\n"
        "\n\n\x1b[1m> Entering new AgentExecutor chain...\x1b[0m\n"
        "\x1b[32;1m\x1b[1;3m I should look around.\n"
        'Action: List Files\nAction Input: {"dir_path": "."}\n\x1b[0m\n'
        "Observation: \x1b[36;1mtrain.py\n\x1b[0m\nThought:\x1b[32;1m Then I run it.\n"
        'Action: Execute Script\nAction Input: {"script_name": "train.py"}\x1b[0m\n'
        "Observation: done\nThought: end\n"
    )
    steps = [STEPS[0], step("Execute Script", {"script_name": "train.py"}, "done", 99.0)]
    log = original(tmp_path / "log", steps, {**OPTIONS, "agent_type": "LangChainAgent"})
    (log / "agent_log" / "main_log").write_text(log_text)
    state = json.loads((log / "agent_log" / "agent_1_1.json").read_text())
    (log / "agent_log" / "agent_1_1.json").write_text(
        json.dumps({"args": state["args"], "intermediate_steps": []})
    )
    folder, result = import_log(log)
    assert [step.call.thought for step in folder.steps()] == ["I should look around.", "Then I run it."]
    assert (folder.spec.agent, result.ending) == ("LangChainAgent", "stopped")
    (log / "env_log" / "trace.json").unlink()
    (again,) = import_logs([log], tmp_path / "again", progress=ignore_progress)
    assert [step.call.args for step in RunFolder(Path(again.folder)).steps()] == [
        {"dir_path": "."},
        {"script_name": "train.py"},
    ]


def test_the_commands_of_auto_gpt_come_from_its_main_log(tmp_path: Path, import_log: Any) -> None:
    log_text = (
        "Using memory of type:  JSONFileMemory\n"
        "\x1b[33mMLAGENT THOUGHTS: \x1b[0m I will write a file.\nREASONING:  It helps.\nPLAN: \n-  write\n"
        "CRITICISM:  none\n\n"
        "NEXT ACTION:  COMMAND = write_to_file  ARGUMENTS = {'filename': 'a.py', 'text': 'print(1)\\n'}\n\n"
        "AUTHORISED COMMANDS LEFT: 9\n"
        "SYSTEM:  Command write_to_file returned: File written to successfully.\n"
        "MLAGENT THOUGHTS:  Now run.\nREASONING:  So.\n"
        "NEXT ACTION:  COMMAND = execute_python_file  ARGUMENTS = not a literal\n"
        "SYSTEM:  Command execute_python_file returned: 1\n2\n"
    )
    log = originals.write(
        tmp_path / "autogpt" / "cifar10" / "1690000000",
        {
            "env_log/trace.json": originals.trace([]),
            "env_log/overall_time.txt": "12.5",
            "env_log/traces/step_final_files/a.py": "print(1)\n",
            "agent_log/main_log": log_text,
            "agent_log/claude-v1_20230722-042629.log": originals.model_call("claude-v1", "Begin", "{}"),
        },
    )
    folder, result = import_log(log)
    steps = folder.steps()
    assert [step.call.action for step in steps] == ["write_to_file", "execute_python_file"]
    assert steps[0].call.args == {"filename": "a.py", "text": "print(1)\n"}
    assert steps[1].call.args == {"action_input": "not a literal"}
    assert steps[0].call.thought.startswith("I will write a file.") and "CRITICISM" in steps[0].call.thought
    assert [step.observation for step in steps] == ["File written to successfully.", "1\n2"]
    assert folder.spec.task == "cifar10"  # from the parent folder
    assert folder.open_store(writable=False).read_content(2, "a.py") == b"print(1)\n"
    assert (result.seconds, result.tokens) == (12.5, 150)


@pytest.mark.parametrize(
    ("error", "ending", "note"),
    [
        ("Traceback\nValueError: bad news\n", "crashed", "ValueError: bad news"),
        ("Traceback\nMLAgentBench.environment.TimeoutException: Timed out!\n", "time", ""),
        ("Traceback\nException: Connection aborted for crfm\n", "fault", "Connection aborted"),
    ],
)
def test_an_error_determines_the_ending(
    error: str, ending: str, note: str, tmp_path: Path, import_log: Any
) -> None:
    log = originals.write(original(tmp_path / "log", STEPS[:2]), {"env_log/error.txt": error})
    _, result = import_log(log)
    assert result.ending == ending and note in result.note


def test_a_run_at_its_step_limit_ends_with_steps(tmp_path: Path, import_log: Any) -> None:
    assert import_log(original(tmp_path / "log", STEPS[:2], {**OPTIONS, "max_steps": 2}))[1].ending == "steps"


@pytest.mark.parametrize("missing", ["env_log", "agent_log"])
def test_half_of_a_log_is_imported(missing: str, tmp_path: Path, import_log: Any) -> None:
    log = original(tmp_path / "log")
    (log / missing).rename(tmp_path / "gone")
    folder, result = import_log(log, task="house-price")
    assert result.steps == 4 and "is missing" in notes(folder)


def test_malformed_content_is_noted_and_never_crashes(tmp_path: Path, import_log: Any) -> None:
    steps: list[Any] = [
        "no step",
        {"action": None},
        {"action": {"name": 7, "args": "raw text"}, "observation": {"a": [1]}, "timestamp": "soon"},
        {
            "action": {"name": "\ud800", "args": {"x": "\udfff", "deep": [[[[[[[[1]]]]]]]]}},
            "observation": None,
        },
        {"action": {"name": "Final Answer", "args": "Done!"}, "observation": "end", "timestamp": -1},
    ]
    log = original(
        tmp_path / "log", [], {**OPTIONS, "max_steps": "many", "max_time": -3, "task": ["x"], "llm_name": 5}
    )
    text = json.dumps({"steps": steps}).replace('"soon"', "NaN")
    (log / "env_log" / "trace.json").write_text(text)
    (log / "env_log" / "overall_time.txt").write_text("a while")
    (log / "env_log" / "error.txt").write_bytes(b"\xff\xfe\x00")
    folder, result = import_log(log)
    assert [step.call.action for step in folder.steps()] == [
        "unreadable",
        "unreadable",
        "7",
        "\\ud800",
        "Final Answer",
    ]
    assert folder.steps()[2].call.args == {"action_input": "raw text"}
    assert folder.steps()[4].call.args == {"final_answer": "Done!"}
    assert result.ending == "submitted" and result.seconds == 0.0 and result.task == "unknown"
    for expected in ("step 0 cannot be read", "does not contain a number", "task could not be determined"):
        assert expected in notes(folder)


@pytest.mark.parametrize(
    "text", ["", "[", "[1]", '{"steps": 3}', "\x00" * 99, "[" * 100_000, '{"steps": [' + "9" * 9999]
)
def test_an_unreadable_trace_gives_an_empty_run(text: str, tmp_path: Path, import_log: Any) -> None:
    log = original(tmp_path / "log")
    (log / "env_log" / "trace.json").write_text(text)
    (log / "agent_log" / "main_log").write_text("")
    folder, result = import_log(log)
    assert result.steps == 0 and notes(folder)


def test_no_symlink_in_a_log_is_followed(tmp_path: Path, import_log: Any) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.txt").write_text("s3cret")
    (secret / "trace.json").write_text(originals.trace(STEPS))
    log = original(tmp_path / "log")
    for name in ("step_1_files", "step_final_files"):
        (log / "env_log" / "traces" / name).rename(tmp_path / f"gone-{name}")
        (log / "env_log" / "traces" / name).symlink_to(secret)
    (log / "env_log" / "trace.json").unlink()
    (log / "env_log" / "trace.json").symlink_to(secret / "trace.json")
    (log / "env_log" / "tool_logs").rename(tmp_path / "gone-tools")
    (log / "env_log" / "tool_logs").symlink_to(secret)
    (log / "env_log" / "traces" / "step_2_files" / "out").symlink_to("../../../../../secret/key.txt")
    folder, _ = import_log(log)
    content = b"".join(path.read_bytes() for path in folder.path.rglob("*") if path.is_file())
    assert b"s3cret" not in content and not any(path.is_symlink() for path in folder.path.rglob("*"))
    assert "trace.json cannot be read" in notes(folder) and "step_1_files was skipped" in notes(folder)
    assert folder.open_store(writable=False).state(3)["out"].kind == "link"


def test_a_snapshot_behind_a_symlink_is_skipped(tmp_path: Path, import_log: Any) -> None:
    log = original(tmp_path / "log")
    (log / "env_log" / "traces").rename(tmp_path / "elsewhere")
    (log / "env_log" / "traces").symlink_to(tmp_path / "elsewhere")
    folder, _ = import_log(log)
    assert "its path contains a symlink" in notes(folder) and folder.open_store(writable=False).state(9) == {}


def test_a_named_pipe_among_the_files_does_not_block(tmp_path: Path, import_log: Any) -> None:
    log = original(tmp_path / "log")
    (log / "env_log" / "overall_time.txt").unlink()
    os.mkfifo(log / "env_log" / "overall_time.txt")
    os.mkfifo(log / "env_log" / "traces" / "step_1_files" / "pipe")
    folder, result = import_log(log)
    assert "overall_time.txt cannot be read" in notes(folder) and result.steps == 4


@pytest.mark.parametrize("name", ["...", "-", "a b;rm", "ü/..b", "x" * 300])
def test_the_run_stays_in_the_output_folder_whatever_the_log_is_called(name: str, tmp_path: Path) -> None:
    parts = [part[:200] for part in name.split("/")]
    original(tmp_path.joinpath("logs", *parts))
    (result,) = import_logs([tmp_path / "logs"], tmp_path / "out" / "runs", progress=ignore_progress)
    assert Path(result.folder).parent == tmp_path / "out" / "runs"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["runs"]


def test_too_large_a_snapshot_is_skipped(tmp_path: Path, import_log: Any) -> None:
    log = original(tmp_path / "log")
    with (log / "env_log" / "traces" / "step_1_files" / "model.bin").open("wb") as file:
        file.truncate(9 * 2**30)  # a sparse file
    folder, _ = import_log(log)
    assert "step_1_files was skipped: the workspace has" in notes(folder)
    assert folder.open_store(writable=False).read_content(4, "train.py") == b"second\n"


def test_several_logs_are_imported_at_once_and_only_once(tmp_path: Path) -> None:
    for name in ("gpt4/cifar10/1", "gpt4/imdb/2", "claude/cifar10/1"):
        original(tmp_path / "logs" / name, options={**OPTIONS, "task": name.split("/")[1]})
    lines: list[str] = []
    first = import_logs([tmp_path / "logs"], tmp_path / "runs", progress=lines.append)
    assert [Path(result.folder).name for result in first] == [
        "claude-cifar10-1",
        "gpt4-cifar10-1",
        "gpt4-imdb-2",
    ]
    assert (
        import_logs([tmp_path / "logs", tmp_path / "logs" / "gpt4"], tmp_path / "runs", progress=lines.append)
        == []
    )
    assert sum("already exists" in line for line in lines) == 3
    alike = [tmp_path / "logs" / "gpt4" / "cifar10" / "1", tmp_path / "logs" / "claude" / "cifar10" / "1"]
    both = import_logs(alike, tmp_path / "others", progress=lines.append)
    assert [Path(result.folder).name for result in both] == ["1", "1-2"]


def evaluation(scores: dict[str, float]) -> str:
    """The output of MLAgentBench.eval."""
    return json.dumps(
        {
            f"some/where/{name}/env_log/trace.json": {"path": "", "final_score": score}
            for name, score in scores.items()
        }
    )


def test_scores_of_the_original_are_claims_and_its_baseline_agent_is_the_baseline(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for number in range(4):
        original(logs / f"baseline/{number}", options={**OPTIONS, "agent_type": "Agent"})
    for number in (5, 6):
        original(logs / f"gpt4/{number}")
    scores = {
        "baseline/0": 100.0,
        "baseline/1": 104.0,
        "baseline/2": 96.0,
        "baseline/3": 100.0,
        "gpt4/5": 50.0,
    }
    (tmp_path / "results.json").write_text(evaluation({**scores, "gpt4/6": -1}))
    results = import_logs(
        [logs], tmp_path / "runs", scores=[tmp_path / "results.json"], progress=ignore_progress
    )
    better, invalid = results[4:]
    assert (better.score, better.baseline, better.improvement, better.success) == (50.0, 100.0, 0.5, True)
    assert better.note == "the score is the claim of the original's evaluation" and not better.ungraded
    assert (invalid.score, invalid.valid, invalid.ungraded) == (None, False, False)
    assert "no valid submission" in invalid.note
    assert better.edition == "original" and better.hashes.grader == ""


def test_an_ambiguous_score_is_not_assigned_to_any_run(tmp_path: Path) -> None:
    original(tmp_path / "logs" / "a" / "7")
    (tmp_path / "results.json").write_text(evaluation({"x/7": 1.0, "y/7": 2.0}))
    (result,) = import_logs([tmp_path / "logs"], tmp_path / "runs", scores=[tmp_path / "results.json"])
    assert result.score is None and result.ungraded


@pytest.fixture(scope="session")
def houses() -> PreparedData:
    return prepare_data(Task.load("house-price"), "open", lambda line: None)


def use_our_data(houses: PreparedData, log: Path) -> Path:
    """Make the agent of a log work on our data and submit the right answers."""
    last = log / "env_log" / "traces" / "step_final_files"
    (last / "test.csv").write_bytes((houses.public / "test.csv").read_bytes())
    (last / "submission.csv").write_bytes((houses.private / "answers.csv").read_bytes())
    return log


def test_a_run_on_the_same_data_is_graded(
    tmp_path: Path, import_log: Any, houses: PreparedData, cli: Any
) -> None:
    folder, result = import_log(use_our_data(houses, original(tmp_path / "log")), edition="open")
    assert (result.score, result.success, result.ungraded, result.edition) == (0.0, True, False, "open")
    assert folder.spec.hashes.data == houses.hash and folder.spec.imported
    again = cli("grade", folder.path, "--json")
    assert json.loads(again.stdout)[0]["score"] == 0.0


@pytest.mark.parametrize(
    ("name", "reason"), [("test.csv", "differs from the file"), ("", "contain no file of the data")]
)
def test_a_run_on_other_data_is_not_graded(
    name: str, reason: str, tmp_path: Path, import_log: Any, houses: PreparedData
) -> None:
    log = use_our_data(houses, original(tmp_path / "log"))
    data_file = log / "env_log" / "traces" / "step_final_files" / "test.csv"
    data_file.write_text("Id\n1\n") if name else data_file.unlink()
    _, result = import_log(log, edition="open")
    assert result.ungraded and result.score is None and reason in result.note


def test_a_different_submission_format_is_not_an_invalid_submission(tmp_path: Path, import_log: Any) -> None:
    _, result = import_log(
        original(tmp_path / "log", options={**OPTIONS, "task": "vectorization"}), edition="open"
    )
    assert result.ungraded and "the original asked for a different file" in result.note


def test_imported_runs_are_in_reports_and_count_only_if_they_were_graded(
    tmp_path: Path, import_log: Any, houses: PreparedData
) -> None:
    import_log(original(tmp_path / "ungraded"))
    import_log(use_our_data(houses, original(tmp_path / "graded")), edition="open")
    graded, ungraded = reports.read_runs([tmp_path / "runs"])
    assert (
        graded.agent_label
        == "ResearchAgent gpt-4 (fast gpt-3.5-turbo, edit gpt-4, retrieval False) [imported]"
    )
    assert (graded.is_fault, ungraded.is_fault) == (False, True)


def test_import_at_the_command_line(tmp_path: Path, cli: Any) -> None:
    done = cli("import", original(tmp_path / "log"), "-o", tmp_path / "runs", "--json")
    (result,) = json.loads(done.stdout)
    assert done.returncode == 0 and result["ungraded"]
    shown = cli("show", result["folder"])
    assert "Edit Script (AI) train.py" in shown.stdout and "imported" in shown.stdout
    assert "not graded (not counted)" in shown.stdout
    assert "+second" in cli("show", result["folder"], "--step", "2", "--diff").stdout
    for command, reason in (("resume", "cannot be resumed"), ("grade", "imported without grading")):
        refused = cli(command, result["folder"])
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1) and reason in refused.stderr


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["nowhere"], "No such folder"),
        (["."], "No logs of the original MLAgentBench in"),
        (["log", "--scores", "nowhere"], "cannot be read"),
        (["log", "--grade", "best"], "no edition 'best'"),
    ],
)
def test_a_usage_error_is_one_line(args: list[str], reason: str, tmp_path: Path, cli: Any) -> None:
    if "log" in args:
        original(tmp_path / "log")
    done = cli("import", *args, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and reason in done.stderr
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").rglob("run.json"))


def test_a_run_folder_is_not_mistaken_for_a_log(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(UsageError, match="env_log"):
        import_logs([tmp_path / "run"], tmp_path / "runs")


@pytest.mark.parametrize("name", KNOWN_TASKS)
def test_every_known_task_of_the_original_is_in_the_suite(name: str) -> None:
    task = Task.load(KNOWN_TASKS[name].name)
    assert task.config.better == KNOWN_TASKS[name].better
