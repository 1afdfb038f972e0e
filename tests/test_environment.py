import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlagentbench.audit.attacks.provoked_faults import RENAME_CODE
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import Fault, RunOver
from mlagentbench.records import Call, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.sandbox.repl import Repl

Open = Callable[..., Environment]
Do = Callable[..., str]


def manifest(env: Environment) -> bytes:
    return (env.context.store.folder / "manifest.jsonl").read_bytes()


def trace(env: Environment) -> list[Step]:
    return list(RunFolder(env.context.outputs_dir.parent).steps())


def test_an_unknown_action_is_answered_with_the_nearest_and_with_all(env: Environment, do: Do) -> None:
    seen = do(env, "Excute Script", script_name="train.py")
    assert "No such action: 'Excute Script'. Did you mean Execute Script?" in seen
    assert "Final Answer" in seen and "Request Help" not in seen
    assert "Did you mean" not in do(env, "Dance")
    assert [step.failed for step in env.steps] == [True, True] and not env.done


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({}, "file_name is missing"),
        ({"file_name": "x", "content": "y", "mode": "w"}, "mode is not an argument of this action"),
        ({"file_name": "x", "content": 5}, "content input should be a valid string"),
        ({"file_name": "x", "content": None}, "content input should be a valid string"),
        ({"file_name": ["x"], "content": "y"}, "file_name input should be a valid string"),
    ],
)
def test_bad_arguments_are_answered_with_the_right_form(
    env: Environment, args: dict[str, Any], problem: str
) -> None:
    seen = env.step(Call(action="Write File", args=args))
    assert f"Error: Write File: {problem}" in seen
    assert '"file_name": [a valid file name' in seen and '"content": [the content' in seen
    assert env.steps[-1].failed and not env.done


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, object()},
        "\ud800",
        {"x": "\udcff"},
        b"\xff",
        math.nan,
        (1, 2),
        {3: {4: 5}},
        Path("x"),
        10**400,
    ],
    ids=lambda value: type(value).__name__,
)
def test_odd_arguments_from_an_agent_are_survived_recorded_and_replayed(
    open_env: Open, value: object, tmp_path: Path
) -> None:
    def act(env: Environment) -> str:
        return env.step(Call(action="Write File", args={"file_name": "odd", "content": value}))

    first = act(open_env())
    again = open_env()
    assert act(again) == first and not again.next_recorded_call
    assert json.loads((tmp_path / "run" / "trace.jsonl").read_text())["observation"] == first


def test_a_call_nested_too_deep_is_survived(env: Environment) -> None:
    nested: list[Any] = []
    for _ in range(5000):
        nested = [nested]
    assert "Error: " in env.step(Call(action="Write File", args={"content": nested}))
    ring: list[Any] = []
    ring.append(ring)
    assert "Error: " in env.step(Call(action="Write File", args={"content": ring}))


def test_every_step_is_on_disk_before_the_agent_sees_it(env: Environment, do: Do) -> None:
    for number in range(1, 4):
        seen = do(env, "Append File", file_name="log", content=f"{number}\n")
        assert trace(env)[-1].observation == seen
        assert trace(env)[-1].number == number
        assert env.context.store.read_content(number, "log").count(b"\n") == number


def test_reading_actions_neither_scan_nor_snapshot(env: Environment, do: Do) -> None:
    do(env, "Write File", file_name="a.py", content="x = 1\n")
    before = manifest(env)
    (env.context.workspace.root / "planted").write_text("a scan would find this")
    do(env, "List Files", dir_path=".")
    do(env, "Read File", file_name="a.py")
    do(env, "Inspect Script Lines", script_name="a.py", start_line_number=1, end_line_number=1)
    do(env, "Nonsense")
    assert manifest(env) == before
    do(env, "Append File", file_name="a.py", content="y = 2\n")
    assert b"planted" in manifest(env)


def test_the_steps_are_a_limit(open_env: Open, do: Do) -> None:
    env = open_env(steps=2)
    do(env, "List Files")
    assert not env.done
    do(env, "Nonsense")  # a mistake costs a step too
    assert env.ending == "steps"
    with pytest.raises(RunOver, match="steps"):
        do(env, "List Files")
    assert len(env.steps) == len(trace(env)) == 2


def test_a_script_is_cut_where_the_time_of_the_run_ends(open_env: Open, do: Do) -> None:
    env = open_env(hours=1.5 / 3600)
    do(env, "Write File", file_name="slow.py", content="print('begun', flush=True)\nwhile True: pass\n")
    seen = do(env, "Execute Script", script_name="slow.py")
    assert "killed: time limit" in seen and "begun" in seen
    assert env.ending == "time" and env.seconds_left == 0
    with pytest.raises(RunOver, match="time"):
        do(env, "List Files")


def test_a_final_answer_ends_the_run_and_a_wrong_one_does_not(env: Environment, do: Do) -> None:
    assert "final_answer is missing" in do(env, "Final Answer")
    assert not env.done
    assert do(env, "Final Answer", final_answer="done") == "Submitted."
    assert env.ending == "submitted"
    with pytest.raises(RunOver):
        do(env, "List Files")


@pytest.mark.parametrize("locked", [".", "data", "data/in"])
def test_a_script_cannot_lock_the_commands_after_it_out(
    open_env: Open, do: Do, variant: Callable[..., Path], toy: Path, locked: str
) -> None:
    told = (toy / "task.toml").read_text().replace('"data/"', '"data/in/kept.csv"')
    folder = variant({"task.toml": told})
    (folder / "starter" / "data" / "in").mkdir(parents=True)
    (folder / "starter" / "data" / "in" / "kept.csv").write_text("1")
    env = open_env(setup=prepare_setup(str(folder), "open", "bwrap", print))
    do(env, "Write File", file_name="lock.py", content=f"import os; os.chmod({locked!r}, 0)")
    do(env, "Write File", file_name="look.py", content="print(open('data/in/kept.csv').read())")
    assert "exit code 0" in do(env, "Execute Script", script_name="lock.py")
    assert do(env, "Execute Script", script_name="look.py").endswith("\n1")


def test_a_full_workspace_is_put_back_and_the_agent_is_told(env: Environment, do: Do) -> None:
    script = "for name in ('big', 'bigger'): open(name, 'wb').truncate(2**27)\nopen('train.py', 'w').write('spoiled')\n"
    do(env, "Write File", file_name="fill.py", content=script)
    seen = do(env, "Execute Script", script_name="fill.py")
    assert "the workspace was restored to its state before this step" in seen
    listed = do(env, "List Files")
    assert "big" not in listed and "fill.py" in listed
    assert "GUESS" in do(env, "Read File", file_name="train.py")
    assert trace(env)[1].notes


def test_a_history_that_grows_with_every_step_ends_at_its_limit(open_env: Open, do: Do) -> None:
    env = open_env(history_gb=0.003)
    do(env, "Write File", file_name="grow.py", content="import os; open('f', 'wb').write(os.urandom(10**6))")
    seen = [do(env, "Execute Script", script_name="grow.py") for _ in range(6)]
    assert ["history of the workspace would be larger than 3.2 MB" in each for each in seen] == [
        False
    ] * 3 + [True] * 3
    assert sum(path.stat().st_size for path in env.context.store.folder.rglob("*") if path.is_file()) < 3.3e6
    assert "f" in do(env, "List Files") and env.fault is None
    assert do(env, "Write File", file_name="g", content="small") == "File g written."


def test_a_file_action_that_fills_the_workspace_is_put_back_too(open_env: Open, do: Do) -> None:
    env = open_env(disk_gb=0.001)
    assert "the workspace was restored" in do(env, "Write File", file_name="big", content="x" * 2_000_000)
    assert "big" not in do(env, "List Files")
    env = open_env("many", files=50)
    do(env, "Write File", file_name="many.py", content="for i in range(100): open(f'f{i}', 'w')\n")
    assert "more than 50 files" in do(env, "Execute Script", script_name="many.py")
    assert "f99" not in do(env, "List Files")


WAKES = """
import ctypes, threading, time
libc = ctypes.CDLL(None)
event = (ctypes.c_int * 16)(0, 0, 18, 0)  # by a signal, which is SIGCONT
timer, often = ctypes.c_void_p(), (ctypes.c_long * 4)(0, 200_000_000, 0, 200_000_000)
assert not libc.timer_create(1, event, ctypes.byref(timer)) and not libc.timer_settime(timer, 0, often, None)
def edit(then):
    while True:
        time.sleep(0.01)
        if time.monotonic() > then: open("late.txt", "w").write("late")
threading.Thread(target=edit, args=[time.monotonic() + 1]).start()
kept = 1
"""


def test_an_interpreter_that_has_itself_woken_is_ended_and_what_it_did_is_undone(
    env: Environment, do: Do, until: Callable[[Callable[[], object]], None]
) -> None:
    assert do(env, "Python REPL", command=WAKES) == "(no output)"
    until((env.context.workspace.root / "late.txt").exists)
    seen = do(env, "List Files")
    assert "late.txt" not in seen and "resumed after its step and was terminated; the workspace was restored" in seen
    assert do(env, "Python REPL", command="'kept' in globals()") == "False"
    assert "resumed" not in do(env, "List Files") and "late.txt" not in env.context.store.state(4)


def test_no_command_begins_while_an_interpreter_is_awake(
    env: Environment, do: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(env, "Python REPL", command="1")
    looks = iter([True, False, False])  # it wakes between the look before a step and the one at the gate
    monkeypatch.setattr(Repl, "stayed_paused", property(lambda self: next(looks)))
    seen = do(env, "Execute Script", script_name="train.py")
    assert seen.startswith("Error: ") and "resumed after its step" in seen and env.steps[-1].execution is None
    assert env.context.repl is None and "exit code 0" in do(env, "Execute Script", script_name="train.py")


def test_files_that_change_under_our_hands_end_who_changes_them_and_not_the_run(
    env: Environment, do: Do
) -> None:
    for _ in range(6):
        do(env, "Python REPL", command=RENAME_CODE)
        do(env, "Execute Script", script_name="train.py")
    told = "".join(step.observation for step in env.steps)
    assert "A background process resumed after its step and was terminated" in told
    assert env.fault is None


def test_a_script_may_delete_everything_but_what_is_read_only(env: Environment, do: Do) -> None:
    script = "import os, shutil\nfor n in os.listdir('.'):\n    shutil.rmtree(n, True)\n"
    script += "    try: os.remove(n)\n    except OSError: pass\n"
    do(env, "Write File", file_name="wipe.py", content=script)
    assert "exit code 0" in do(env, "Execute Script", script_name="wipe.py")
    assert do(env, "List Files").split() == ["data/", "questions.csv", "(23", "B)"]
    assert "does not exist" in do(env, "Execute Script", script_name="wipe.py")
    do(env, "Undo Edit Script", script_name="train.py")
    assert "exit code 0" in do(env, "Execute Script", script_name="train.py")


SPELLINGS = (
    "questions.csv ./questions.csv data/../questions.csv /workspace/questions.csv data//deep/./more.csv"
)
SPELLINGS += " data/deep/more.csv data/new.csv data //workspace//data/x"


@pytest.mark.parametrize("spelling", SPELLINGS.split())
def test_read_only_files_are_refused_by_every_writing_action_in_any_spelling(
    env: Environment, do: Do, spelling: str
) -> None:
    before = manifest(env)
    for args in (
        {"action": "Write File", "file_name": spelling, "content": "x"},
        {"action": "Append File", "file_name": spelling, "content": "x"},
        {"action": "Copy File", "source": "train.py", "destination": spelling},
        {"action": "Undo Edit Script", "script_name": spelling},
    ):
        seen = do(env, **args)
        assert "read-only" in seen, seen
    assert manifest(env) == before


def test_read_only_files_withstand_a_script(env: Environment, do: Do) -> None:
    script = """
import os, shutil
def attempt(name, deed):
    try:
        deed()
        print(name, "DONE")
    except OSError as error:
        print(name, error.strerror)
attempt("write", lambda: open("questions.csv", "w").write("x"))
attempt("remove", lambda: os.remove("questions.csv"))
attempt("rename", lambda: os.rename("questions.csv", "q"))
attempt("replace", lambda: os.replace("train.py", "questions.csv"))
attempt("folder", lambda: os.rename("data", "old"))
attempt("inside", lambda: open("data/deep/more.csv", "a").write("x"))
attempt("new", lambda: open("data/new", "w"))
attempt("chmod", lambda: os.chmod("questions.csv", 0o666))
attempt("hard link", lambda: (os.link("questions.csv", "hard"), open("hard", "w").write("x")))
"""
    do(env, "Write File", file_name="attack.py", content=script)
    seen = do(env, "Execute Script", script_name="attack.py")
    assert "exit code 0" in seen and "DONE" not in seen
    assert do(env, "Read File", file_name="questions.csv").startswith("id\n0\n1\n")


def test_read_only_files_that_were_changed_all_the_same_are_put_back(env: Environment, do: Do) -> None:
    given = (env.context.workspace.root / "questions.csv").read_bytes()
    (env.context.workspace.root / "questions.csv").write_text("tampered with")
    (env.context.workspace.root / "data" / "deep" / "more.csv").unlink()
    seen = do(env, "Write File", file_name="notes", content="x")
    assert "[Read-only files were changed and have been restored: " in seen
    assert "questions.csv" in seen and "data/deep/more.csv" in seen
    assert (env.context.workspace.root / "questions.csv").read_bytes() == given
    assert env.context.store.read_content(1, "questions.csv") == given
    assert env.context.store.read_content(1, "notes") == b"x"


def test_links_to_the_answers_lead_nowhere(env: Environment, do: Do, setup) -> None:
    secret = setup.data.private / "answers.csv"
    script = f"import os\nos.remove('train.py')\nos.symlink({str(secret)!r}, 'train.py')\n"
    script += f"os.symlink({str(secret.parent)!r}, 'folder')\nos.symlink('..', 'up')\n"
    do(env, "Write File", file_name="link.py", content=script)
    assert "exit code 0" in do(env, "Execute Script", script_name="link.py")
    for seen in (
        do(env, "Read File", file_name="train.py"),
        do(env, "Inspect Script Lines", script_name="train.py", start_line_number=1, end_line_number=5),
        do(env, "Copy File", source="train.py", destination="copy"),
        do(env, "Execute Script", script_name="train.py"),
        do(env, "Append File", file_name="train.py", content="x"),
        do(env, "Read File", file_name="folder/answers.csv"),
        do(env, "List Files", dir_path="folder"),
        do(env, "Write File", file_name="up/escaped", content="x"),
    ):
        assert seen.startswith("Error: ") and "link" in seen, seen
    assert f"train.py -> {secret}" in do(env, "List Files")
    assert secret.read_text().startswith("id,value")


def test_a_fault_in_a_step_is_not_swallowed_by_an_agent_that_catches_everything(
    env: Environment, do: Do
) -> None:
    env.context.outputs_dir.write_text("a file where the folder should be")
    with pytest.raises(Fault, match="exists"):
        do(env, "Execute Script", script_name="train.py")
    with pytest.raises(Fault, match="exists"):
        do(env, "List Files")
    assert env.fault and trace(env) == []


def test_a_resumed_run_repeats_its_record_and_goes_on(open_env: Open, do: Do) -> None:
    first = open_env()
    seen = [
        do(first, "Write File", file_name="a", content="1"),
        do(first, "Execute Script", script_name="train.py"),
    ]
    clock = first.steps[-1].clock
    (first.context.workspace.root / "a").write_text("spoiled after the kill")
    env = open_env()
    assert env.elapsed_seconds == 0 and env.next_recorded_call == first.steps[0].call
    assert do(env, "Write File", file_name="a", content="1") == seen[0]
    assert do(env, "Execute Script", script_name="train.py") == seen[1]
    assert env.next_recorded_call is None and env.elapsed_seconds >= clock
    assert do(env, "Read File", file_name="a") == "1"
    assert env.steps[-1].clock >= clock and [step.number for step in trace(env)] == [1, 2, 3]


def test_the_time_that_a_replay_takes_is_not_counted(open_env: Open, do: Do) -> None:
    env = open_env(hours=2 / 3600)
    for number in range(3):
        do(env, "Python REPL", command=f"import time; time.sleep(0.3); x = {number}")
    used = env.steps[-1].clock
    env = open_env()
    for number in range(3):
        do(env, "Python REPL", command=f"import time; time.sleep(0.3); x = {number}")
    assert used <= env.elapsed_seconds < used + 0.2
    assert do(env, "Python REPL", command="x") == "2"


def test_an_agent_that_does_not_repeat_itself_is_a_fault_that_says_how_to_go_on(
    open_env: Open, do: Do
) -> None:
    env = open_env()
    do(env, "List Files")
    do(env, "Write File", file_name="a", content="1")
    env = open_env()
    do(env, "List Files")
    with pytest.raises(
        Fault, match=r"Replay diverged at step 2: recorded Write File, got Read File\. Resume with --from-step 1"
    ):
        do(env, "Read File", file_name="a")
    env = open_env()
    do(env, "List Files")
    with pytest.raises(Fault, match="Write File with other arguments"):
        do(env, "Write File", file_name="a", content="2")


def test_other_thoughts_are_no_other_calls(open_env: Open) -> None:
    open_env().step(Call(action="List Files", thought="hm \ud800"))
    env = open_env()
    assert env.next_recorded_call and env.next_recorded_call.thought == "hm \\ud800"
    env.step(Call(action="List Files", thought="aha"))
    assert not env.next_recorded_call


def test_a_script_that_removes_the_workspace_itself_leaves_it_empty(
    open_env: Open, do: Do, toy: Path
) -> None:
    from mlagentbench.runner.setup import prepare_setup

    env = open_env(setup=prepare_setup(str(toy), "open", "none", lambda line: None))
    do(env, "Write File", file_name="gone.py", content="import os, shutil\nshutil.rmtree(os.getcwd())\n")
    seen = do(env, "Execute Script", script_name="gone.py")
    assert "Read-only files were changed and have been restored" in seen
    assert "train.py" not in do(env, "List Files") and "questions.csv" in do(env, "List Files")


def test_environments_share_the_classes_of_their_actions(open_env: Callable[..., Environment]) -> None:
    one, other = (open_env(name).actions["Read File"] for name in ("one", "other"))
    assert one.arguments is other.arguments  # each is heavy, and a batch has thousands of runs
