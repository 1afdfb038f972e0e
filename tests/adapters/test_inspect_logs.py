"""Runs of ours as logs of Inspect, read by Inspect."""

import math
import zipfile
from pathlib import Path

import pytest
from fake_model import FakeModel
from inspect_ai.log import list_eval_logs, read_eval_log

from mlagentbench.adapters.inspect.logs import write_log
from mlagentbench.errors import ModelFault, UsageError
from mlagentbench.records import Call, Message


def act(env):
    env.ask([Message(role="user", text="What now?")])
    env.step(
        Call(action="Write File", args={"file_name": "train.py", "content": "1 / 0"}, thought="Break it.")
    )
    env.step(Call(action="Understand File", args={"file_name": "train.py", "things_to_look_for": "faults"}))
    env.step(Call(action="Read File", args={"file_name": "nowhere"}))
    env.step(Call(action="Final Answer", args={"final_answer": "done"}))


@pytest.fixture
def log(play, tmp_path):
    """The log of a run: log(behaviour, models, **limits)."""

    def make(behaviour, lines=(), **limits):
        result = play(behaviour, models={"main": FakeModel(lines)} if lines else {}, **limits)
        write_log(Path(result.folder), tmp_path / "logs" / "run.eval")
        return result, read_eval_log(str(tmp_path / "logs" / "run.eval"), resolve_attachments=True)

    return make


def test_steps_are_messages_and_tool_events_and_every_model_call_is_included(log):
    result, read = log(act, ["Break it.", "There are none."])
    sample = read.samples[0]
    assert [message.role for message in sample.messages] == ["user", *["assistant", "tool"] * 4]
    assert sample.messages[1].text == "Break it."
    assert sample.messages[1].tool_calls[0].arguments == {"file_name": "train.py", "content": "1 / 0"}
    assert sample.messages[6].error.message.startswith("Error: nowhere does not exist")
    assert [event.event for event in sample.events] == [
        *["model", "tool", "info"],
        *["tool", "model", "info"],
        *["tool", "info"] * 2,
        "score",
    ]
    assert [event.output.completion for event in sample.events if event.event == "model"] == [
        "Break it.",
        "There are none.",
    ]
    assert sample.events[-2].data["snapshot"] == result.snapshot
    times = [event.timestamp for event in sample.events if event.event == "tool"]
    assert times == sorted(times)


def test_scores_usage_and_settings_are_included(log):
    result, read = log(act, ["Break it.", "There are none."])
    sample = read.samples[0]
    value = sample.scores["verdict"].as_dict()
    assert (read.status, value["valid"], value["success"]) == ("success", 0.0, 0.0)
    assert math.isnan(value["score"])
    assert {score.name for score in read.results.scores} == {"success", "valid"}
    assert {role: usage.total_tokens for role, usage in sample.role_usage.items()} == {"main": 40, "fast": 40}
    assert read.stats.model_usage["fake"].total_tokens == result.tokens == 80
    assert sample.model_usage["fake"].total_cost == pytest.approx(result.dollars)
    assert (read.eval.task, read.eval.solver, sample.metadata["run_folder"]) == (
        "mlagentbench/toy",
        "played",
        str(result.folder),
    )


def test_the_limit_that_ended_the_run_is_the_samples_limit(log):
    _, read = log(
        lambda env: [env.step(Call(action="List Files", args={"dir_path": "."})) for _ in range(2)], steps=2
    )
    assert (read.samples[0].limit.type, read.samples[0].limit.limit) == ("custom", 2)


def test_a_fault_is_an_error_without_a_score(log):
    result, read = log(lambda env: env.ask([Message(role="user", text="?")]), [ModelFault("no credit")])
    assert result.ending == "fault"
    assert (read.status, read.samples[0].scores) == ("error", {})
    assert "no credit" in read.samples[0].error.message


def test_an_unfinished_run_can_be_exported(env, do, tmp_path):
    do(env, "List Files", dir_path=".")
    write_log(tmp_path / "run", tmp_path / "run.json")
    read = read_eval_log(str(tmp_path / "run.json"))
    assert (read.status, len(read.samples[0].messages)) == ("started", 3)


def test_inspects_viewer_lists_the_exported_log(play, cli, tmp_path):
    result = play(lambda env: env.step(Call(action="Final Answer", args={"final_answer": "x"})))
    log = tmp_path / "logs" / "a.eval"
    done = cli("export", result.folder, "--to", "inspect", "-o", log)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{log}\n", "")
    assert zipfile.is_zipfile(tmp_path / "logs" / "a.eval")
    assert [Path(found.name).name for found in list_eval_logs(str(tmp_path / "logs"))] == ["a.eval"]


def test_a_missing_run_or_a_bad_log_name_is_one_line(tmp_path):
    with pytest.raises(UsageError, match="is not a run"):
        write_log(tmp_path, tmp_path / "a.eval")
    with pytest.raises(UsageError, match=r"NAME\.eval"):
        write_log(tmp_path, tmp_path / "a.txt")
