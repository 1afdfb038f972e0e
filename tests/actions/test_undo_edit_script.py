from collections.abc import Callable
from pathlib import Path

from mlagentbench.environment.environment import Environment

Do = Callable[..., str]


def undo(env: Environment, do: Do, name: str = "a.py") -> str:
    return do(env, "Undo Edit Script", script_name=name)


def content(env: Environment, name: str = "a.py") -> str | None:
    path = env.context.workspace.root / name
    return path.read_text() if path.exists() else None


def run(env: Environment, do: Do, script: str) -> None:
    do(env, "Write File", file_name="script.py", content=script)
    assert "exit code 0" in do(env, "Execute Script", script_name="script.py")


def test_several_undos_in_a_row_restore_earlier_and_earlier_versions(env: Environment, do: Do) -> None:
    for text in ("one", "two", "three"):
        do(env, "Write File", file_name="a.py", content=text)
    assert undo(env, do) == "a.py was restored to its state before the last change."
    assert content(env) == "two"
    undo(env, do)
    assert content(env) == "one"
    assert undo(env, do) == "a.py did not exist before its last change; it was removed."
    assert content(env) is None
    assert undo(env, do) == "Error: a.py has no change to undo."


def test_an_undo_after_new_changes_undoes_those_first(env: Environment, do: Do) -> None:
    do(env, "Write File", file_name="a.py", content="one")
    do(env, "Write File", file_name="a.py", content="two")
    undo(env, do, "./a.py")
    do(env, "Append File", file_name="a.py", content=" more")
    assert content(env) == "one more"
    undo(env, do, "/workspace/a.py")
    assert content(env) == "one"
    undo(env, do)
    assert content(env) is None


def test_a_file_that_never_changed_has_nothing_to_undo(env: Environment, do: Do) -> None:
    assert undo(env, do, "train.py") == "Error: train.py has no change to undo."
    assert undo(env, do, "never.py") == "Error: never.py has no change to undo."
    assert undo(env, do, "data").endswith("is read-only.")
    assert "read-only" in undo(env, do, "questions.csv")


def test_writing_the_same_content_is_not_a_change(env: Environment, do: Do) -> None:
    do(env, "Write File", file_name="a.py", content="one")
    do(env, "Write File", file_name="a.py", content="one")
    undo(env, do)
    assert content(env) is None


def test_undo_restores_a_file_that_a_script_deleted_together_with_its_folder(
    env: Environment, do: Do
) -> None:
    do(env, "Write File", file_name="deep/down/a.py", content="precious")
    run(env, do, "import shutil\nshutil.rmtree('deep')\n")
    assert content(env, "deep/down/a.py") is None
    assert undo(env, do, "deep/down/a.py").endswith("was restored to its state before the last change.")
    assert content(env, "deep/down/a.py") == "precious"


def test_undo_restores_what_a_script_changed_or_replaced_by_a_link(env: Environment, do: Do) -> None:
    do(env, "Write File", file_name="a.py", content="precious")
    run(env, do, "import os\nos.chmod('a.py', 0o751)\n")
    undo(env, do)
    path: Path = env.context.workspace.root / "a.py"
    assert path.stat().st_mode & 0o777 == 0o644
    run(env, do, "import os\nos.remove('a.py'); os.symlink('/etc/passwd', 'a.py')\n")
    undo(env, do)
    assert not path.is_symlink() and content(env) == "precious"
    run(env, do, "open('a.py', 'w').write('spoiled')\n")
    undo(env, do)
    assert content(env) == "precious"
    undo(env, do)
    assert content(env) is None


def test_undo_does_not_remove_a_folder_that_replaced_the_file(env: Environment, do: Do) -> None:
    do(env, "Write File", file_name="a.py", content="one")
    run(env, do, "import os\nos.remove('a.py'); os.mkdir('a.py'); open('a.py/inside', 'w')\n")
    assert "only changes of files can be undone" in undo(env, do)
    run(env, do, "import os, shutil\nshutil.rmtree('a.py')\n")
    assert "only changes of files can be undone" in undo(env, do)


def test_undo_fails_if_the_folder_of_the_file_became_a_file(env: Environment, do: Do) -> None:
    do(env, "Write File", file_name="deep/a.py", content="one")
    run(env, do, "import shutil\nshutil.rmtree('deep'); open('deep', 'w')\n")
    assert "one of its parent folders is no longer a folder" in undo(env, do, "deep/a.py")


def test_a_failed_undo_does_not_count(env: Environment, do: Do) -> None:
    do(env, "Undo Edit Script")
    do(env, "Undo Edit Script", script_name=5)
    undo(env, do)
    do(env, "Write File", file_name="a.py", content="one")
    do(env, "Write File", file_name="a.py", content="two")
    undo(env, do)
    assert content(env) == "one"


def test_undos_are_replayed_on_resume(open_env: Callable[..., Environment], do: Do) -> None:
    def act(env: Environment) -> None:
        for text in ("one", "two", "three"):
            do(env, "Write File", file_name="a.py", content=text)
        undo(env, do)

    act(open_env())
    env = open_env()
    act(env)
    assert content(env) == "two"
    undo(env, do)
    assert content(env) == "one"
