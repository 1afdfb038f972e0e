from collections.abc import Callable

import pytest
from fake_model import FakeModel

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import PromptTooLong, RunOver

OpenEnv = Callable[..., Environment]
Do = Callable[..., str]


def prompt_texts(model: FakeModel) -> list[str]:
    return [prompt.messages[-1].text for prompt in model.prompts]


def test_without_a_model_actions_that_need_one_are_not_offered(env: Environment, do: Do) -> None:
    assert "Understand File" not in env.actions and "Append Summary to Research Log" in env.actions
    assert "No such action: 'Understand File'" in do(
        env, "Understand File", file_name="a", things_to_look_for="b"
    )


def test_understand_file_asks_the_fast_model(open_env: OpenEnv, do: Do) -> None:
    fast = FakeModel(["it prints a number"])
    env = open_env(models={"main": FakeModel([]), "fast": fast})
    assert (
        do(env, "Understand File", file_name="train.py", things_to_look_for="what it prints")
        == "it prints a number"
    )
    (question,) = prompt_texts(fast)
    assert "part 1 of 1 of the file train.py" in question and "what it prints" in question


def test_a_long_file_is_read_in_parts_and_the_answers_are_combined(open_env: OpenEnv, do: Do) -> None:
    main = FakeModel(["first", "second", "third", "all of it"])
    env = open_env(models={"main": main})
    do(env, "Write File", file_name="long.txt", content="".join(f"line {n}\n" for n in range(3000)))
    assert do(env, "Understand File", file_name="long.txt", things_to_look_for="lines") == "all of it"
    assert "line 0\n" in prompt_texts(main)[0] and "line 2999\n" in prompt_texts(main)[2]
    assert "Part 1: first\n\nPart 2: second\n\nPart 3: third" in prompt_texts(main)[3]


def test_the_observation_says_how_much_of_a_huge_file_was_not_read(open_env: OpenEnv, do: Do) -> None:
    env = open_env(models={"main": FakeModel(["x"] * 13)})
    do(env, "Write File", file_name="huge.txt", content="x" * 200_000)
    observation = do(env, "Understand File", file_name="huge.txt", things_to_look_for="x")
    assert "[the last 56,000 of 200,000 bytes were not read]" in observation


@pytest.mark.parametrize(
    ("name", "message"), [("none.txt", "none.txt does not exist"), ("empty.txt", "empty.txt is empty")]
)
def test_the_model_is_not_asked_about_a_file_that_is_missing_or_empty(
    open_env: OpenEnv, do: Do, name: str, message: str
) -> None:
    env = open_env(models={"main": FakeModel([])})
    do(env, "Write File", file_name="empty.txt", content="\n")
    assert message in do(env, "Understand File", file_name=name, things_to_look_for="x")


def test_a_script_is_edited_and_the_diff_is_shown(open_env: OpenEnv, do: Do) -> None:
    edit = FakeModel(["Done:\n```python\nx = 2\ny = 1\n```\n"])
    env = open_env(models={"main": FakeModel([]), "edit": edit})
    do(env, "Write File", file_name="a.py", content="x = 1\ny = 1\n")
    observation = do(env, "Edit Script (AI)", script_name="a.py", edit_instruction="x is 2", save_name="b.py")
    assert "-x = 1\n+x = 2\n y = 1" in observation and "saved to b.py" in observation
    assert do(env, "Read File", file_name="b.py") == "x = 2\ny = 1\n"
    assert "x = 1\ny = 1\n" in prompt_texts(edit)[0] and "Edit it as follows: x is 2" in prompt_texts(edit)[0]


def test_edit_script_can_create_a_new_script(open_env: OpenEnv, do: Do) -> None:
    env = open_env(models={"main": FakeModel(["```\nprint(1)\n```"])})
    args = {"script_name": "deep/new.py", "edit_instruction": "print 1", "save_name": "deep/new.py"}
    assert "+print(1)" in do(env, "Edit Script (AI)", **args)
    assert do(env, "Read File", file_name="deep/new.py") == "print(1)\n"


def test_a_small_change_of_a_long_script_is_shown_and_a_large_one_is_only_counted(
    open_env: OpenEnv, do: Do
) -> None:
    old = "".join(f"{number}\nx\n" for number in range(3000))
    small, large = old.replace("1500\n", "changed\n", 1), old.replace("x", "y")
    env = open_env(models={"main": FakeModel([f"```\n{text}```" for text in (small, large)])})
    do(env, "Write File", file_name="a.py", content=old)
    args = {"script_name": "a.py", "edit_instruction": "change", "save_name": "b.py"}
    assert "-1500\n+changed\n" in do(env, "Edit Script (AI)", **args)
    assert "6,000 lines became 6,000" in do(env, "Edit Script (AI)", **args)
    assert do(
        env, "Inspect Script Lines", script_name="b.py", start_line_number=6000, end_line_number=6000
    ).endswith("y")


def test_edit_script_segment_changes_only_the_segment(open_env: OpenEnv, do: Do) -> None:
    env = open_env(models={"main": FakeModel(["```python\n    b = 3\n```"])})
    do(env, "Write File", file_name="a.py", content="def f():\n    a = 1\n    b = 2\n    return a\n")
    args = {"script_name": "a.py", "start_line_number": 3, "end_line_number": 3, "edit_instruction": "b is 3"}
    observation = do(env, "Edit Script Segment (AI)", **args, save_name="a.py")
    assert "-    b = 2\n+    b = 3" in observation
    assert do(env, "Read File", file_name="a.py") == "def f():\n    a = 1\n    b = 3\n    return a\n"
    args["end_line_number"] = 9
    assert "a.py has 4 lines" in do(env, "Edit Script Segment (AI)", **args, save_name="a.py")


BAD_EDITS = {
    "a read-only file": ({"save_name": "questions.csv"}, "```\nx\n```", "read-only"),
    "a path outside the workspace": ({"save_name": "../a.py"}, "```\nx\n```", "outside"),
    "a truncated answer": ({}, "```\nx = 1\n", "answer was truncated"),
    "no answer": ({}, "", "answer was empty"),
    "an empty block": ({}, "```python\n```", "answer was empty"),
}


@pytest.mark.parametrize(("args", "reply", "message"), BAD_EDITS.values(), ids=BAD_EDITS.keys())
def test_an_edit_that_fails_is_an_error_and_changes_nothing(
    open_env: OpenEnv, do: Do, args: dict[str, str], reply: str, message: str
) -> None:
    env = open_env(models={"main": FakeModel([reply])})
    before = do(env, "Read File", file_name="train.py")
    all_args = {"script_name": "train.py", "edit_instruction": "x", "save_name": "train.py", **args}
    observation = do(env, "Edit Script (AI)", **all_args)
    assert observation.startswith("Error: ") and message in observation
    assert do(env, "Read File", file_name="train.py") == before


def test_an_edit_can_be_undone(open_env: OpenEnv, do: Do) -> None:
    env = open_env(models={"main": FakeModel(["```\nbroken\n```"])})
    before = do(env, "Read File", file_name="train.py")
    do(env, "Edit Script (AI)", script_name="train.py", edit_instruction="break it", save_name="train.py")
    do(env, "Undo Edit Script", script_name="train.py")
    assert do(env, "Read File", file_name="train.py") == before


def test_the_research_log_is_written_searched_and_reflected_on(open_env: OpenEnv, do: Do) -> None:
    fast = FakeModel(["the figure", "try more"])
    env = open_env(models={"main": FakeModel([]), "fast": fast})
    assert "log is empty" in do(env, "Retrieval from Research Log", current_plan="p")
    do(env, "Append Summary to Research Log", content="step one gave 0.5")
    do(env, "Append Summary to Research Log", content="step two gave 0.6")
    assert do(env, "Retrieval from Research Log", current_plan="find the best") == "the figure"
    assert do(env, "Reflection", things_to_reflect_on="what is next") == "try more"
    for question, topic in zip(prompt_texts(fast), ("find the best", "what is next"), strict=True):
        assert "step one gave 0.5\n\nstep two gave 0.6" in question and topic in question


def test_the_research_log_is_restored_on_resume(open_env: OpenEnv, do: Do) -> None:
    env = open_env(models={"main": FakeModel([])})
    do(env, "Append Summary to Research Log", content="step one gave 0.5")
    main = FakeModel(["found"])
    env = open_env(models={"main": main})
    do(env, "Append Summary to Research Log", content="step one gave 0.5")
    do(env, "Retrieval from Research Log", current_plan="p")
    assert prompt_texts(main)[0].count("step one gave 0.5") == 1


def test_a_prompt_that_is_too_long_for_the_model_is_an_error_that_the_agent_sees(
    open_env: OpenEnv, do: Do
) -> None:
    env = open_env(models={"main": FakeModel([PromptTooLong("100 tokens at most")])})
    observation = do(env, "Understand File", file_name="train.py", things_to_look_for="x")
    assert "This is too long for the model: 100 tokens at most" in observation and not env.done


def test_the_budget_also_applies_inside_an_action(open_env: OpenEnv, do: Do) -> None:
    env = open_env(models={"main": FakeModel(["x"] * 9)}, tokens=5)
    with pytest.raises(RunOver, match="tokens"):
        do(env, "Understand File", file_name="train.py", things_to_look_for="x")
    assert env.ending == "tokens" and not env.steps


def test_a_resumed_run_does_not_repeat_the_model_calls_of_an_action(open_env: OpenEnv, do: Do) -> None:
    def understand(env: Environment) -> str:
        return do(env, "Understand File", file_name="train.py", things_to_look_for="x")

    understand(open_env(models={"main": FakeModel(["once"])}))
    second = FakeModel(["once", "twice"])
    env = open_env(models={"main": second})
    assert (understand(env), understand(env)) == ("once", "twice")
    assert len(second.prompts) == 1 and env.model_calls.tokens == 80
