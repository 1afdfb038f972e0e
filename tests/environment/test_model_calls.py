import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_model import FakeModel

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import Fault, ModelFault, PromptRejected, PromptTooLong, RunOver, UsageError
from mlagentbench.models.base import Price, load_model
from mlagentbench.records import Call, Message, ModelCall, Prompt, Result
from mlagentbench.runner.folder import RunFolder

Play = Callable[..., Result]


def ask(env: Environment, text: str, **options: Any) -> str:
    return env.ask([Message(role="user", text=text)], **options).text


def chat(count: int) -> Callable[[Environment], None]:
    """An agent that asks what to write and writes it, `count` times."""

    def behaviour(env: Environment) -> None:
        for number in range(count):
            reply = ask(env, f"what comes as number {number}?")
            env.step(Call(action="Write File", args={"file_name": "reply.txt", "content": reply}))
        env.step(Call(action="Final Answer", args={"final_answer": "enough"}))

    return behaviour


def calls(tmp_path: Path, name: str = "run") -> list[ModelCall]:
    return list(RunFolder(tmp_path / name).calls())


def test_every_call_is_recorded_with_its_purpose_and_cost(play: Play, tmp_path: Path) -> None:
    result = play(chat(2), models={"main": FakeModel(["one", "two"])})
    first, second = calls(tmp_path)
    assert (first.number, first.step, first.role, first.inside, first.model) == (
        1,
        1,
        "main",
        False,
        "fake",
    )
    assert (second.number, second.step) == (2, 2)
    assert second.prompt.messages == (Message(role="user", text="what comes as number 1?"),)
    assert second.reply and second.reply.text == "two"
    assert (result.tokens, result.dollars, result.steps) == (80, 0.02, 3)
    assert [step.tokens for step in RunFolder(tmp_path / "run").steps()] == [40, 80, 80]


def test_a_role_without_a_model_of_its_own_uses_the_main_model(open_env: Callable[..., Environment]) -> None:
    env = open_env(models={"main": FakeModel(["main"] * 2), "fast": FakeModel(["fast"])})
    assert [ask(env, "who?", role=role) for role in ("main", "fast", "edit")] == ["main", "fast", "main"]


def test_a_run_ends_before_a_call_would_exceed_its_token_limit(play: Play, tmp_path: Path) -> None:
    result = play(chat(9), models={"main": FakeModel(["x"] * 9)}, tokens=125)
    assert (result.ending, result.steps, result.tokens) == ("tokens", 3, 120)
    assert len(calls(tmp_path)) == 3


def test_a_run_ends_before_a_call_would_exceed_its_dollar_limit(play: Play) -> None:
    model = FakeModel(["x"] * 9)
    model.price = Price(0.0005, 0.001)
    result = play(chat(9), models={"main": model}, dollars=0.0235)
    assert (result.ending, result.dollars) == ("money", 0.02)
    assert [prompt.max_tokens for prompt in model.prompts] == [19, 9]


def test_the_length_of_a_reply_is_capped_by_the_remaining_budget(play: Play) -> None:
    model = FakeModel(["x"] * 9)
    play(chat(2), models={"main": model}, tokens=100)
    assert [prompt.max_tokens for prompt in model.prompts] == [92, 52]


def test_a_dollar_limit_needs_a_price(open_env: Callable[..., Environment]) -> None:
    model = FakeModel(["x"])
    model.price = None
    with pytest.raises(UsageError, match="price is known"):
        ask(open_env(models={"main": model}, dollars=1), "hello")


def test_asking_in_a_run_without_a_model_says_what_to_pass(env: Environment) -> None:
    with pytest.raises(UsageError, match="Pass --model NAME"):
        ask(env, "hello")


def test_a_failing_provider_is_a_fault_and_the_run_can_be_resumed(play: Play, tmp_path: Path) -> None:
    result = play(chat(3), models={"main": FakeModel(["one", ModelFault("overloaded for an hour")])})
    assert (result.ending, result.valid, result.note) == (
        "fault",
        False,
        "ModelFault: overloaded for an hour",
    )
    second = FakeModel(["one", "two", "three"])
    result = play(chat(3), models={"main": second})
    assert (result.ending, result.tokens, [p.messages[0].text[-2] for p in second.prompts]) == (
        "submitted",
        120,
        ["1", "2"],
    )


def test_any_other_error_of_a_model_call_is_a_fault_and_not_a_crash_of_the_agent(
    play: Play, tmp_path: Path
) -> None:
    result = play(chat(2), models={"main": FakeModel(["one", RuntimeError("can't start new thread")])})
    assert result.ending == "fault" and result.note.startswith("Fault: RuntimeError: can't start new thread")
    assert play(chat(2), models={"main": FakeModel(["one", "two"])}).ending == "submitted"


def test_the_agent_handles_a_prompt_that_is_too_long_and_this_is_replayed(play: Play, tmp_path: Path) -> None:
    def behaviour(env: Environment) -> None:
        try:
            reply = ask(env, "x" * 1000)
        except PromptTooLong as error:
            reply = ask(env, f"shorter, since {error}")
        env.step(Call(action="Write File", args={"file_name": "reply.txt", "content": reply}))
        reply = ask(env, "and now?")
        env.step(Call(action="Final Answer", args={"final_answer": reply}))

    replies = [PromptTooLong("at most 100 tokens"), "good", "done"]
    play(behaviour, models={"main": FakeModel(replies)})
    assert (calls(tmp_path)[0].too_long, calls(tmp_path)[0].reply) == ("at most 100 tokens", None)
    result = play(behaviour, models={"main": FakeModel([])}, from_step=2)
    assert (
        result.steps == 2
        and calls(tmp_path)[1].prompt.messages[0].text == "shorter, since at most 100 tokens"
    )


@pytest.mark.parametrize(
    ("replies", "ending", "note"),
    [
        ([PromptRejected("no tools")], "fault", "PromptRejected: no tools"),
        (["one", PromptRejected("flagged")], "crashed", "The agent crashed: ActionError: flagged"),
    ],
)
def test_a_rejected_prompt_is_a_fault_only_before_the_model_has_answered(
    play: Play, replies: list[str | Exception], ending: str, note: str
) -> None:
    result = play(chat(2), models={"main": FakeModel(replies)})
    assert result.ending == ending and result.note.startswith(note)


def test_an_action_whose_prompt_is_rejected_fails_and_the_run_continues(play: Play) -> None:
    def behaviour(env: Environment) -> None:
        ask(env, "anything")
        text = env.step(
            Call(action="Understand File", args={"file_name": "train.py", "things_to_look_for": "x"})
        )
        assert text.startswith("Error: The model rejects this: flagged")
        env.step(Call(action="Final Answer", args={"final_answer": "done"}))

    model = FakeModel(["one", PromptRejected("flagged")])
    result = play(behaviour, models={"main": model, "fast": model})
    assert result.ending == "fault"  # "fast" has not answered anything
    model = FakeModel(["one", "two", PromptRejected("flagged")])

    def later(env: Environment) -> None:
        ask(env, "anything", role="fast")
        behaviour(env)

    assert play(later, models={"main": model, "fast": model}, name="later").ending == "submitted"


@pytest.mark.parametrize("kept", range(4))
@pytest.mark.parametrize("calls_ahead", [0, 1])
def test_a_resumed_run_makes_only_calls_that_are_not_recorded_and_ends_the_same(
    play: Play, tmp_path: Path, kept: int, calls_ahead: int
) -> None:
    replies = ["one", "two", "three"]
    play(chat(3), models={"main": FakeModel(replies)})
    folder = RunFolder(tmp_path / "run")
    trace, prompts = folder.trace.path.read_text(), [call.prompt for call in folder.calls()]
    known = min(kept + calls_ahead, 3)
    for journal, count in (folder.trace, kept), (folder.model_calls, known):
        text = "".join(journal.path.read_text().splitlines(keepends=True)[:count])
        journal.path.write_text(text + '{"incomplete')  # as a killed process leaves it
    (folder.path / "result.json").unlink()
    model = FakeModel(replies)
    result = play(chat(3), models={"main": model})
    assert (result.ending, result.tokens, len(model.prompts)) == ("submitted", 120, 3 - known)
    assert [call.prompt for call in folder.calls()] == prompts
    assert [call.number for call in folder.calls()] == [1, 2, 3]
    assert _without_times(folder.trace.path.read_text()) == _without_times(trace)


def _without_times(trace: str) -> list[tuple[Any, ...]]:
    steps = [json.loads(line) for line in trace.splitlines()]
    return [(step["number"], step["call"], step["observation"], step["tokens"]) for step in steps]


def test_a_run_resumed_from_an_earlier_step_asks_the_model_again(play: Play, tmp_path: Path) -> None:
    play(chat(3), models={"main": FakeModel(["one", "two", "three"])})
    second = FakeModel(["one", "zwei", "drei"])
    result = play(chat(3), models={"main": second}, from_step=1)
    assert [call.reply and call.reply.text for call in calls(tmp_path)] == ["one", "zwei", "drei"]
    assert (result.tokens, len(second.prompts)) == (120, 2)


def test_a_replay_with_other_prompts_is_a_fault_that_says_how_to_continue(play: Play) -> None:
    play(chat(3), models={"main": FakeModel(["one", "two", "three"])})
    questions = iter("abc")

    def diverging(env: Environment) -> None:
        ask(env, next(questions))

    result = play(diverging, models={"main": FakeModel([])}, from_step=2)
    assert (
        result.ending == "fault"
        and "Replay diverged at step 1" in result.note
        and "--from-step 0" in result.note
    )


def test_after_the_last_step_an_agent_may_ask_something_else_and_earlier_calls_still_count(
    play: Play, tmp_path: Path
) -> None:
    def first(env: Environment) -> None:
        ask(env, "what now?")
        raise KeyboardInterrupt

    def second(env: Environment) -> None:
        env.step(Call(action="Final Answer", args={"final_answer": ask(env, "anything else?")}))

    with pytest.raises(KeyboardInterrupt):
        play(first, models={"main": FakeModel(["lost"])})
    result = play(second, models={"main": FakeModel(["lost", "found"])})
    assert (result.tokens, [call.reply and call.reply.text for call in calls(tmp_path)]) == (
        80,
        ["lost", "found"],
    )


def test_prompts_and_replies_may_contain_invalid_utf8(play: Play, tmp_path: Path) -> None:
    def behaviour(env: Environment) -> None:
        env.step(Call(action="Final Answer", args={"final_answer": ask(env, "\udcff")}))

    play(behaviour, models={"main": FakeModel(["\ud800!"])})
    (call,) = calls(tmp_path)
    assert (call.prompt.messages[0].text, call.reply and call.reply.text) == ("\\udcff", "\\ud800!")


def test_a_recorded_model_gives_the_replies_of_another_run(play: Play, tmp_path: Path) -> None:
    play(chat(3), models={"main": FakeModel(["one", "two", "three"])})
    result = play(chat(3), "again", models={"main": load_model(f"recorded:{tmp_path / 'run'}")})
    assert (result.tokens, result.dollars) == (120, 0.0)
    assert [c.reply and c.reply.text for c in calls(tmp_path, "again")] == ["one", "two", "three"]
    result = play(chat(4), "more", models={"main": load_model(f"recorded:{tmp_path / 'run'}")})
    assert result.ending == "fault" and "has no recorded reply to this prompt" in result.note


def test_a_scripted_model_reads_its_replies_from_a_file(play: Play, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("one\nand a half\n=====\ntwo Observation: none\n")
    model = load_model(f"scripted:{script}")
    prompt = Prompt(messages=(Message(role="user", text="go"),), stop=("Observation:",))
    assert [model.reply(prompt).text for _ in range(2)] == ["one\nand a half", "two "]
    with pytest.raises(ModelFault, match="has only 2 replies"):
        model.reply(prompt)
    with pytest.raises(UsageError, match="cannot be read"):
        load_model("scripted:/nowhere.txt")


def test_asking_after_the_end_of_the_run_is_refused(open_env: Callable[..., Environment]) -> None:
    env = open_env(models={"main": FakeModel([])})
    env.step(Call(action="Final Answer", args={"final_answer": ""}))
    with pytest.raises(RunOver, match="submitted"):
        ask(env, "hello?")


def test_a_damaged_record_is_a_fault_that_names_the_line(play: Play, tmp_path: Path) -> None:
    play(chat(1), models={"main": FakeModel(["one"])})
    (tmp_path / "run" / "model_calls.jsonl").write_text('{"number": 1}\n')
    with pytest.raises(Fault, match=r"model_calls.jsonl: line 1 is damaged"):
        calls(tmp_path)
