import os
from collections.abc import Callable

import pytest

from mlagentbench.environment.environment import Environment

Do = Callable[..., str]
PATHS_OUTSIDE = [
    "..",
    "../run.json",
    "/etc/passwd",
    "data/../../run.json",
    "/",
    "/workspace/../etc/passwd",
    "a/../../x",
]


def test_files_are_written_read_appended_and_copied(env: Environment, do: Do) -> None:
    assert do(env, "Write File", file_name="notes/one.txt", content="a\n") == "File notes/one.txt written."
    assert (
        do(env, "Append File", file_name="./notes//one.txt", content="b\n") == "Appended to ./notes//one.txt."
    )
    assert do(env, "Append File", file_name="new.txt", content="c") == "Appended to new.txt."
    observation = do(env, "Copy File", source="notes/one.txt", destination="far/away/two.txt")
    assert observation == "Copied notes/one.txt to far/away/two.txt."
    assert do(env, "Read File", file_name="far/away/two.txt") == "a\nb\n"
    assert do(env, "Read File", file_name="/workspace/new.txt") == "c"
    assert do(env, "Write File", file_name="new.txt", content="") == "File new.txt written."
    assert do(env, "Read File", file_name="new.txt") == ""


@pytest.mark.parametrize("path", PATHS_OUTSIDE)
def test_no_action_accepts_a_path_outside_the_workspace(env: Environment, do: Do, path: str) -> None:
    for observation in (
        do(env, "Read File", file_name=path),
        do(env, "Write File", file_name=path, content="x"),
        do(env, "Append File", file_name=path, content="x"),
        do(env, "Copy File", source=path, destination="x"),
        do(env, "Copy File", source="train.py", destination=path),
        do(env, "List Files", dir_path=path),
        do(env, "Inspect Script Lines", script_name=path, start_line_number=1, end_line_number=1),
        do(env, "Undo Edit Script", script_name=path),
        do(env, "Execute Script", script_name=f"{path}/x.py"),
    ):
        assert observation.startswith("Error: ") and "outside the workspace" in observation, observation


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "the path is empty"),
        ("missing.txt", "does not exist"),
        ("data", "is a folder"),
        (".", "is a folder"),
        ("train.py/x", "is below a file"),
        ("a\0b", "NUL"),
        ("x" * 300, "too long"),
        ("x/" * 5000, "too long"),
    ],
)
def test_a_path_that_is_not_a_file_is_an_error_with_the_reason(
    env: Environment, do: Do, path: str, message: str
) -> None:
    observation = do(env, "Read File", file_name=path)
    assert observation.startswith("Error: ") and message in observation
    assert len(observation) < 400


def test_a_long_file_is_truncated_and_the_number_of_missing_bytes_is_shown(env: Environment, do: Do) -> None:
    do(env, "Write File", file_name="long.txt", content="é" * 15_000)
    observation = do(env, "Read File", file_name="long.txt")
    assert observation.startswith("é" * 10_000 + "\n[... 10,000 more bytes of 30,000 not shown ...]")
    do(env, "Write File", file_name="fits.txt", content="x" * 20_000)
    assert do(env, "Read File", file_name="fits.txt") == "x" * 20_000


def test_a_binary_file_is_shown_with_replacement_characters(env: Environment, do: Do) -> None:
    (env.context.workspace.root / "binary").write_bytes(b"\xff\x00abc")
    assert do(env, "Read File", file_name="binary") == "\ufffd\x00abc"


def test_unusual_file_names_are_listed_on_one_line_each(env: Environment, do: Do) -> None:
    for name in ("with space.txt", "ünïcödé.txt", "emoji 🙂", "two\nlines", "-dash", "tab\there"):
        assert not env.steps or not env.steps[-1].failed
        do(env, "Write File", file_name=name, content="12345")
        assert do(env, "Read File", file_name=name) == "12345"
    (env.context.workspace.root / os.fsdecode(b"not-utf8-\xff")).touch()
    (env.context.workspace.root / "link").symlink_to(os.fsdecode(b"nowhere\n\xfe"))
    listed = do(env, "List Files", dir_path=".").split("\n")
    assert listed == sorted(listed)
    expected = [
        "with space.txt (5 B)",
        "ünïcödé.txt (5 B)",
        "two\\nlines (5 B)",
        "-dash (5 B)",
        "tab\\there (5 B)",
    ]
    expected += ["not-utf8-\\udcff (0 B)", "link -> nowhere\\n\\udcfe", "data/", "questions.csv (23 B)"]
    assert set(expected) <= set(listed)
    do(env, "Append File", file_name="x", content="")  # takes the snapshot that holds them
    assert not env.steps[-1].failed


def test_folders_are_listed_and_an_empty_one_is_reported(env: Environment, do: Do) -> None:
    assert do(env, "List Files", dir_path="data") == "deep/"
    assert do(env, "List Files", dir_path="data/deep/") == "more.csv (12 B)"
    (env.context.workspace.root / "empty").mkdir()
    assert do(env, "List Files", dir_path="empty") == "The folder is empty."
    assert "does not exist" in do(env, "List Files", dir_path="nowhere")
    assert "not a folder" in do(env, "List Files", dir_path="train.py")


def test_a_folder_with_many_files_is_listed_in_part(env: Environment, do: Do) -> None:
    (env.context.workspace.root / "many").mkdir()
    for number in range(1100):
        (env.context.workspace.root / "many" / f"{number:04}").touch()
    listed = do(env, "List Files", dir_path="many").split("\n")
    assert len(listed) == 1001 and listed[-1] == "... and 100 more"


def test_lines_are_shown_with_their_numbers(env: Environment, do: Do) -> None:
    do(env, "Write File", file_name="a.py", content="".join(f"line {n}\n" for n in range(1, 251)))

    def inspect(first: object, last: object) -> str:
        return do(
            env, "Inspect Script Lines", script_name="a.py", start_line_number=first, end_line_number=last
        )

    assert inspect(2, 3) == "Lines 2 to 3 of 250:\n    2 line 2\n    3 line 3"
    assert inspect("2", "3") == inspect(2, 3)  # models write numbers as text
    assert inspect(1, 100).count("\n") == 100
    assert "At most 100 lines" in inspect(1, 101)
    assert inspect(249, 300).endswith("  249 line 249\n  250 line 250")
    assert "a.py has only 250 lines" in inspect(251, 251)
    for wrong in ((0, 5), (5, 4), (-1, 5)):
        assert "start_line_number must be at least 1" in inspect(*wrong)
    assert "start_line_number input should be a valid integer" in inspect("two", 3)
    assert "end_line_number" in inspect(1, 2.5)


def test_the_lines_of_an_empty_file_and_of_one_without_a_last_newline(env: Environment, do: Do) -> None:
    do(env, "Write File", file_name="e", content="")
    do(env, "Write File", file_name="one", content="x" * 1000)
    assert "has only 0 lines" in do(
        env, "Inspect Script Lines", script_name="e", start_line_number=1, end_line_number=1
    )
    observation = do(env, "Inspect Script Lines", script_name="one", start_line_number=1, end_line_number=1)
    assert observation == f"Lines 1 to 1 of 1:\n    1 {'x' * 500}"


def test_a_pipe_in_the_workspace_does_not_block_any_action(env: Environment, do: Do) -> None:
    os.mkfifo(env.context.workspace.root / "pipe")
    for observation in (
        do(env, "Read File", file_name="pipe"),
        do(env, "Append File", file_name="pipe", content="x"),
        do(env, "Copy File", source="pipe", destination="x"),
        do(env, "Write File", file_name="pipe", content="x"),
    ):
        assert observation.startswith("Error: ")
    assert "pipe (not a regular file)" in do(env, "List Files")


def test_request_help_is_available_only_in_interactive_runs(
    open_env: Callable[..., Environment], do: Do
) -> None:
    assert "No such action" in do(open_env(), "Request Help", request="?")
    interactive = open_env("interactive", person=lambda request: f"you said {request}")
    assert do(interactive, "Request Help", request="help") == "you said help"
    again = open_env("interactive", person=lambda request: "asked twice")
    assert do(again, "Request Help", request="help") == "you said help"
