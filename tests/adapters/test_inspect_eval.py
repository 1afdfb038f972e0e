"""Evaluations by Inspect itself, on the toy: real tool calls, real sandboxes, a model that says its lines."""

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog, EvalSample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, bash_session, text_editor

from mlagentbench.adapters.inspect.entry import folder_task
from mlagentbench.adapters.inspect.sample_run import SampleRun
from mlagentbench.runner.folder import RunFolder

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # Inspect leaves streams to the collector

REFERENCE = (Path(__file__).parents[1] / "toy" / "reference" / "train.py").read_text()
Lines = Sequence[ModelOutput] | Callable[..., Any]
Evaluate = Callable[..., EvalLog]


def _paid(output: ModelOutput) -> ModelOutput:
    output.usage = ModelUsage(input_tokens=30, output_tokens=10, total_tokens=40)
    return output


def said(text: str) -> ModelOutput:
    return _paid(ModelOutput.from_content("mockllm", text))


def called(tool: str, **args: Any) -> ModelOutput:
    return _paid(ModelOutput.for_tool_call("mockllm", tool, args, content="I think so."))


def script(code: str) -> list[ModelOutput]:
    return [
        called("write_file", file_name="x.py", content=code),
        called("execute_script", script_name="x.py"),
    ]


SOLUTION = [
    called("write_file", file_name="train.py", content=REFERENCE),
    called("execute_script", script_name="train.py"),
    called("final_answer", final_answer="done"),
]
RESEARCH = (
    "Reflection: r\nResearch Plan and Status: p\nFact Check: f\nThought: t\nAction: {}\nAction Input: {}"
)


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """What Inspect leaves is collected here, where it is not an error."""
    yield
    gc.collect()


@pytest.fixture
def evaluate(toy: Path, tmp_path: Path) -> Iterator[Evaluate]:
    """An evaluation of the toy: evaluate(lines, agent="research", epochs=2)."""

    def run(lines: Lines, task: Path = toy, roles: dict[str, Lines] | None = None, **options: Any) -> EvalLog:
        ours = {
            name: options.pop(name) for name in ("agent", "steps", "hours", "isolation") if name in options
        }
        made = folder_task(task_folder=str(task), runs=str(tmp_path / "runs"), **ours)
        others = {role: _model(said) for role, said in (roles or {}).items()}
        logs = eval(
            made, _model(lines), model_roles=others, log_dir=str(tmp_path / "logs"), display="none", **options
        )
        return logs[0]

    yield run
    assert not SampleRun.active  # whatever happened, nothing is left open


def _model(lines: Lines) -> Any:
    return get_model("mockllm/model", custom_outputs=lines, memoize=False)


def only(log: EvalLog) -> EvalSample:
    assert log.samples and len(log.samples) == 1
    return log.samples[0]


def values(sample: EvalSample) -> dict[str, Any]:
    assert sample.scores
    return sample.scores["verdict"].as_dict()


def run_of(sample: EvalSample) -> RunFolder:
    return RunFolder(Path(sample.metadata["run_folder"]))


def test_inspects_react_agent_uses_the_actions_and_is_graded_by_the_grader(evaluate):
    log = evaluate(SOLUTION)
    sample = only(log)
    assert log.status == "success"
    assert values(sample) == {"success": 1.0, "improvement": 1.0, "score": 0.0, "valid": 1.0}
    assert {score.name: score.metrics["mean"].value for score in log.results.scores}["improvement"] == 1.0
    run = run_of(sample)
    assert [step.call.action for step in run.steps()] == ["Write File", "Execute Script", "Final Answer"]
    assert run.steps()[0].call.thought == "I think so."
    assert (run.result.ending, run.result.success, run.result.tokens) == ("submitted", True, 120)
    assert [call.reply.calls[0].name for call in run.calls()] == [
        "write_file",
        "execute_script",
        "final_answer",
    ]


def test_every_step_is_in_the_transcript_with_its_snapshot(evaluate):
    sample = only(evaluate(SOLUTION))
    noted = [
        event.data for event in sample.events if event.event == "info" and event.source == "mlagentbench"
    ]
    store = run_of(sample).open_store(writable=False)
    assert [(note["step"], note["snapshot"]) for note in noted] == [
        (n, store.tree_hash(n)) for n in (1, 2, 3)
    ]


def test_epochs_have_their_own_seeds_and_folders(evaluate):
    log = evaluate(lambda *_: SOLUTION[2], epochs=3)
    assert sorted(run_of(sample).spec.seed for sample in log.samples) == [1, 2, 3]
    assert {values(sample)["valid"] for sample in log.samples} == {0.0}


def test_missing_scores_are_left_out_of_the_means_and_are_not_zeros(evaluate):
    log = evaluate([SOLUTION[2]])
    means = {score.name: score for score in log.results.scores}
    assert means["success"].metrics["mean"].value == 0.0
    assert (means["improvement"].scored_samples, means["improvement"].unscored_samples) == (0, 1)
    assert "submission.csv" in only(log).scores["verdict"].explanation


def test_the_research_agent_uses_inspects_models_and_its_steps_are_the_samples_messages(evaluate):
    lines = [
        said(RESEARCH.format("Write File", json.dumps({"file_name": "train.py", "content": REFERENCE}))),
        said(RESEARCH.format("Execute Script", '{"script_name": "train.py"}')),
        said(RESEARCH.format("Final Answer", '{"final_answer": "done"}')),
    ]
    log = evaluate(lines, agent="research")
    sample = only(log)
    assert values(sample)["success"] == 1.0
    run = run_of(sample)
    assert (run.spec.agent, run.spec.model, run.result.tokens) == ("research", "mockllm/model", 120)
    assert log.stats.model_usage["mockllm/model"].total_tokens == 120
    told = [message.function for message in sample.messages if message.role == "tool"]
    assert told == ["write_file", "execute_script", "final_answer"]


def test_the_roles_fast_and_edit_have_their_own_models(evaluate):
    lines = [
        called("understand_file", file_name="train.py", things_to_look_for="the guess"),
        called(
            "edit_script_ai", script_name="train.py", edit_instruction="guess better", save_name="train.py"
        ),
        called("execute_script", script_name="train.py"),
        SOLUTION[2],
    ]
    roles = {"fast": [said("It guesses 9.5.")], "edit": [said(f"```python\n{REFERENCE}```")]}
    log = evaluate(lines, roles=roles)
    sample = only(log)
    assert values(sample)["success"] == 1.0
    assert "It guesses 9.5." in next(message.text for message in sample.messages if message.role == "tool")
    assert [call.role for call in run_of(sample).calls()] == ["main", "fast", "main", "edit", "main", "main"]
    assert set(log.stats.role_usage) >= {"fast", "edit"}


@pytest.mark.parametrize("agent", [pytest.param("react", marks=pytest.mark.slow), "research"])
def test_a_limit_of_inspect_ends_the_sample_and_the_workspace_is_graded(evaluate, agent):
    going_on = (
        called("list_files", dir_path=".")
        if agent == "react"
        else RESEARCH.format("List Files", '{"dir_path": "."}')
    )
    work = [
        called("execute_script", script_name="train.py"),
        RESEARCH.format("Execute Script", '{"script_name": "train.py"}'),
    ]
    first = work[0] if agent == "react" else said(work[1])
    others = going_on if agent == "react" else said(going_on)
    lines = iter([first])
    sample = only(evaluate(lambda *_: next(lines, others), agent=agent, message_limit=9))
    assert sample.limit and sample.limit.type == "message"
    assert values(sample) | {"improvement": 0} == {
        "success": 0.0,
        "improvement": 0,
        "score": 5.0,
        "valid": 1.0,
    }
    assert run_of(sample).result.ending == "stopped"


@pytest.mark.parametrize("agent", ["react", pytest.param("research", marks=pytest.mark.slow)])
def test_a_time_limit_of_inspect_terminates_a_script_with_all_its_processes(evaluate, agent, until):
    code = "import subprocess, time\nprint(1, flush=True)\nsubprocess.Popen(['sleep', '98761'])\ntime.sleep(98761)"
    write, run = json.dumps({"file_name": "x.py", "content": code}), '{"script_name": "x.py"}'
    told = [said(RESEARCH.format("Write File", write)), said(RESEARCH.format("Execute Script", run))]
    sample = only(evaluate(script(code) if agent == "react" else told, agent=agent, time_limit=6))
    assert sample.limit and sample.limit.type == "time"
    assert values(sample)["valid"] == 0.0
    assert len(run_of(sample).steps()) == 1
    until(
        lambda: (
            not any(
                b"98761" in path.read_bytes()
                for path in Path("/proc").glob("[0-9]*/cmdline")
                if path.exists()
            )
        )
    )


def test_a_fault_is_an_error_of_the_sample_and_never_a_zero(evaluate, variant):
    broken = variant({"grade.py": "def grade(submission, private):\n    raise ValueError(1)\n"})
    log = evaluate([called("execute_script", script_name="train.py"), SOLUTION[2]], task=broken)
    sample = only(log)
    assert (log.status, sample.scores) == ("error", {})
    assert "TaskFault" in sample.error.message
    assert run_of(sample).result.ending == "fault"


def test_a_failing_model_is_a_fault_too(evaluate):
    log = evaluate([], agent="research")
    assert log.status == "error"
    assert "ModelFault" in only(log).error.message
    assert run_of(only(log)).result.ending == "fault"


def test_the_step_limit_of_the_run_ends_the_react_agent(evaluate):
    sample = only(evaluate(lambda *_: called("list_files", dir_path="."), steps=2))
    assert run_of(sample).result.ending == "steps"
    assert len(sample.messages) == 6


def test_many_samples_run_in_parallel(evaluate):
    code = "import time; print(time.time(), flush=True); time.sleep(1.5); print(time.time())"
    lines = {"write_file": script(code)[0], "execute_script": script(code)[1], "final_answer": SOLUTION[2]}

    def next_line(messages, *_):
        done = [message.function for message in messages if message.role == "tool"]
        return list(lines.values())[len(done)]

    log = evaluate(next_line, epochs=5, max_samples=5)
    times = [[float(word) for word in run_of(s).steps()[1].observation.splitlines()[1:]] for s in log.samples]
    assert max(begun for begun, _ in times) < min(ended for _, ended in times)


def test_any_inspect_solver_finds_the_actions_among_its_tools(evaluate):
    sample = only(evaluate([*SOLUTION[:2], said("I am done.")], solver=generate()))
    assert values(sample)["success"] == 1.0
    assert run_of(sample).result.ending == "stopped"


def test_a_usage_error_is_one_line(toy):
    with pytest.raises(PrerequisiteError, match="no agent 'nobody'; there are: "):
        folder_task(task_folder=str(toy), agent="nobody")
    with pytest.raises(PrerequisiteError, match="needs a person"):
        folder_task(task_folder=str(toy), agent="human")


@pytest.mark.slow  # Inspect brings tens of megabytes into the sandbox
def test_tools_that_inspect_injects_work_in_the_bwrap_sandbox(tmp_path):
    lines = [
        called("bash", command="cat given.txt; sleep 1000 >/dev/null & echo begun"),
        called("text_editor", command="create", path="/workspace/new.txt", file_text="made"),
        called("bash_session", action="type_submit", input="cd /workspace; echo $((6 * 7)) $(cat new.txt)"),
        said("done"),
    ]
    tools = use_tools(bash(timeout=10), text_editor(), bash_session())
    sample = Sample(
        input="?", target="done", files={"given.txt": "given"}, setup="echo ' and set up' >> given.txt"
    )
    task = Task([sample], solver=[tools, generate()], scorer=includes(), sandbox="bwrap")
    (log,) = eval(task, _model(lines), log_dir=str(tmp_path), display="none")
    heard = [message.text for message in only(log).messages if message.role == "tool"]
    assert heard[0].splitlines() == ["given and set up", "begun"]
    assert "42 made" in heard[2]
