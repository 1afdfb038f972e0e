from collections.abc import Callable

import pytest
from fake_model import FakeModel

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import PromptTooLong, RunOver

Open = Callable[..., Environment]
Do = Callable[..., str]


def heard(parrot: FakeModel) -> list[str]:
    return [prompt.messages[-1].text for prompt in parrot.prompts]


def test_without_a_model_actions_that_ask_one_are_not_offered(env: Environment, do: Do) -> None:
    assert "Understand File" not in env.actions and "Append Summary to Research Log" in env.actions
    assert "No such action: 'Understand File'" in do(
        env, "Understand File", file_name="a", things_to_look_for="b"
    )


def test_a_file_is_understood_by_the_fast_model(open_env: Open, do: Do) -> None:
    fast = FakeModel(["it prints a number"])
    env = open_env(models={"main": FakeModel([]), "fast": fast})
    assert (
        do(env, "Understand File", file_name="train.py", things_to_look_for="what it prints")
        == "it prints a number"
    )
    (asked,) = heard(fast)
    assert "part 1 of 1 of the file train.py" in asked and "what it prints" in asked


def test_a_long_file_is_read_in_parts_which_are_put_together(open_env: Open, do: Do) -> None:
    main = FakeModel(["first", "second", "third", "all of it"])
    env = open_env(models={"main": main})
    do(env, "Write File", file_name="long.txt", content="".join(f"line {n}\n" for n in range(3000)))
    assert do(env, "Understand File", file_name="long.txt", things_to_look_for="lines") == "all of it"
    assert "line 0\n" in heard(main)[0] and "line 2999\n" in heard(main)[2]
    assert "Part 1: first\n\nPart 2: second\n\nPart 3: third" in heard(main)[3]


def test_of_a_huge_file_the_rest_is_said_to_be_unread(open_env: Open, do: Do) -> None:
    env = open_env(models={"main": FakeModel(["x"] * 13)})
    do(env, "Write File", file_name="huge.txt", content="x" * 200_000)
    seen = do(env, "Understand File", file_name="huge.txt", things_to_look_for="x")
    assert "[the last 56,000 of 200,000 bytes were not read]" in seen


@pytest.mark.parametrize(
    ("name", "said"), [("none.txt", "none.txt does not exist"), ("empty.txt", "empty.txt is empty")]
)
def test_what_cannot_be_read_is_not_asked_about(open_env: Open, do: Do, name: str, said: str) -> None:
    env = open_env(models={"main": FakeModel([])})
    do(env, "Write File", file_name="empty.txt", content="\n")
    assert said in do(env, "Understand File", file_name=name, things_to_look_for="x")


def test_a_script_is_edited_and_the_change_is_shown(open_env: Open, do: Do) -> None:
    edit = FakeModel(["Done:\n```python\nx = 2\ny = 1\n```\n"])
    env = open_env(models={"main": FakeModel([]), "edit": edit})
    do(env, "Write File", file_name="a.py", content="x = 1\ny = 1\n")
    seen = do(env, "Edit Script (AI)", script_name="a.py", edit_instruction="x is 2", save_name="b.py")
    assert "-x = 1\n+x = 2\n y = 1" in seen and "saved to b.py" in seen
    assert do(env, "Read File", file_name="b.py") == "x = 2\ny = 1\n"
    assert "x = 1\ny = 1\n" in heard(edit)[0] and "Edit it as follows: x is 2" in heard(edit)[0]


def test_a_script_that_is_not_there_yet_can_be_written(open_env: Open, do: Do) -> None:
    env = open_env(models={"main": FakeModel(["```\nprint(1)\n```"])})
    args = {"script_name": "deep/new.py", "edit_instruction": "print 1", "save_name": "deep/new.py"}
    assert "+print(1)" in do(env, "Edit Script (AI)", **args)
    assert do(env, "Read File", file_name="deep/new.py") == "print(1)\n"


def test_of_thousands_of_lines_a_small_change_is_shown_and_a_large_one_is_counted(
    open_env: Open, do: Do
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


def test_a_segment_is_edited_and_nothing_else(open_env: Open, do: Do) -> None:
    env = open_env(models={"main": FakeModel(["```python\n    b = 3\n```"])})
    do(env, "Write File", file_name="a.py", content="def f():\n    a = 1\n    b = 2\n    return a\n")
    args = {"script_name": "a.py", "start_line_number": 3, "end_line_number": 3, "edit_instruction": "b is 3"}
    seen = do(env, "Edit Script Segment (AI)", **args, save_name="a.py")
    assert "-    b = 2\n+    b = 3" in seen
    assert do(env, "Read File", file_name="a.py") == "def f():\n    a = 1\n    b = 3\n    return a\n"
    args["end_line_number"] = 9
    assert "a.py has 4 lines" in do(env, "Edit Script Segment (AI)", **args, save_name="a.py")


EDITS = {
    "a read-only file": ({"save_name": "questions.csv"}, "```\nx\n```", "read-only"),
    "a place outside": ({"save_name": "../a.py"}, "```\nx\n```", "outside"),
    "an answer that was cut off": ({}, "```\nx = 1\n", "answer was truncated"),
    "no answer": ({}, "", "answer was empty"),
    "an empty block": ({}, "```python\n```", "answer was empty"),
}


@pytest.mark.parametrize(("args", "reply", "said"), EDITS.values(), ids=EDITS.keys())
def test_an_edit_that_cannot_be_is_an_error_and_changes_nothing(
    open_env: Open, do: Do, args: dict[str, str], reply: str, said: str
) -> None:
    env = open_env(models={"main": FakeModel([reply])})
    before = do(env, "Read File", file_name="train.py")
    all_args = {"script_name": "train.py", "edit_instruction": "x", "save_name": "train.py", **args}
    seen = do(env, "Edit Script (AI)", **all_args)
    assert seen.startswith("Error: ") and said in seen
    assert do(env, "Read File", file_name="train.py") == before


def test_an_edit_can_be_undone(open_env: Open, do: Do) -> None:
    env = open_env(models={"main": FakeModel(["```\nbroken\n```"])})
    before = do(env, "Read File", file_name="train.py")
    do(env, "Edit Script (AI)", script_name="train.py", edit_instruction="break it", save_name="train.py")
    do(env, "Undo Edit Script", script_name="train.py")
    assert do(env, "Read File", file_name="train.py") == before


def test_the_research_log_is_written_searched_and_reflected_on(open_env: Open, do: Do) -> None:
    fast = FakeModel(["the figure", "try more"])
    env = open_env(models={"main": FakeModel([]), "fast": fast})
    assert "log is empty" in do(env, "Retrieval from Research Log", current_plan="p")
    do(env, "Append Summary to Research Log", content="step one gave 0.5")
    do(env, "Append Summary to Research Log", content="step two gave 0.6")
    assert do(env, "Retrieval from Research Log", current_plan="find the best") == "the figure"
    assert do(env, "Reflection", things_to_reflect_on="what is next") == "try more"
    for asked, wanted in zip(heard(fast), ("find the best", "what is next"), strict=True):
        assert "step one gave 0.5\n\nstep two gave 0.6" in asked and wanted in asked


def test_the_research_log_is_there_again_after_a_resume(open_env: Open, do: Do) -> None:
    env = open_env(models={"main": FakeModel([])})
    do(env, "Append Summary to Research Log", content="step one gave 0.5")
    main = FakeModel(["found"])
    env = open_env(models={"main": main})
    do(env, "Append Summary to Research Log", content="step one gave 0.5")
    do(env, "Retrieval from Research Log", current_plan="p")
    assert heard(main)[0].count("step one gave 0.5") == 1


def test_a_model_that_cannot_take_so_much_is_an_error_that_the_agent_hears(open_env: Open, do: Do) -> None:
    env = open_env(models={"main": FakeModel([PromptTooLong("100 tokens at most")])})
    seen = do(env, "Understand File", file_name="train.py", things_to_look_for="x")
    assert "This is too long for the model: 100 tokens at most" in seen and not env.done


def test_the_budget_also_holds_inside_an_action(open_env: Open, do: Do) -> None:
    env = open_env(models={"main": FakeModel(["x"] * 9)}, tokens=5)
    with pytest.raises(RunOver, match="tokens"):
        do(env, "Understand File", file_name="train.py", things_to_look_for="x")
    assert env.ending == "tokens" and not env.steps


def test_what_an_action_asked_is_not_asked_again_after_a_resume(open_env: Open, do: Do) -> None:
    def look(env: Environment) -> str:
        return do(env, "Understand File", file_name="train.py", things_to_look_for="x")

    look(open_env(models={"main": FakeModel(["once"])}))
    again = FakeModel(["once", "twice"])
    env = open_env(models={"main": again})
    assert (look(env), look(env)) == ("once", "twice")
    assert len(again.prompts) == 1 and env.model_calls.tokens == 80
