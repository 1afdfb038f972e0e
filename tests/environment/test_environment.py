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

OpenEnv = Callable[..., Environment]
Do = Callable[..., str]


def manifest(env: Environment) -> bytes:
    return (env.context.store.folder / "manifest.jsonl").read_bytes()


def trace(env: Environment) -> list[Step]:
    return list(RunFolder(env.context.outputs_dir.parent).steps())


def test_the_error_for_an_unknown_action_suggests_a_similar_one_and_lists_all(
    env: Environment, do: Do
) -> None:
    observation = do(env, "Excute Script", script_name="train.py")
    assert "No such action: 'Excute Script'. Did you mean Execute Script?" in observation
    assert "Final Answer" in observation and "Request Help" not in observation
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
def test_the_error_for_bad_arguments_shows_the_right_ones(
    env: Environment, args: dict[str, Any], problem: str
) -> None:
    observation = env.step(Call(action="Write File", args=args))
    assert f"Error: Write File: {problem}" in observation
    assert '"file_name": [a valid file name' in observation and '"content": [the content' in observation
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
def test_arguments_that_json_cannot_carry_are_errors_recorded_and_replayed(
    open_env: OpenEnv, value: object, tmp_path: Path
) -> None:
    def act(env: Environment) -> str:
        return env.step(Call(action="Write File", args={"file_name": "x", "content": value}))

    first = act(open_env())
    resumed = open_env()
    assert act(resumed) == first and not resumed.next_recorded_call
    assert json.loads((tmp_path / "run" / "trace.jsonl").read_text())["observation"] == first


def test_a_call_that_is_nested_too_deeply_is_an_error(env: Environment) -> None:
    nested: list[Any] = []
    for _ in range(5000):
        nested = [nested]
    assert "Error: " in env.step(Call(action="Write File", args={"content": nested}))
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    assert "Error: " in env.step(Call(action="Write File", args={"content": cyclic}))


def test_every_step_is_on_disk_before_the_agent_sees_it(env: Environment, do: Do) -> None:
    for number in range(1, 4):
        observation = do(env, "Append File", file_name="log", content=f"{number}\n")
        assert trace(env)[-1].observation == observation
        assert trace(env)[-1].number == number
        assert env.context.store.read_content(number, "log").count(b"\n") == number


def test_read_only_actions_take_no_snapshot(env: Environment, do: Do) -> None:
    do(env, "Write File", file_name="a.py", content="x = 1\n")
    before = manifest(env)
    (env.context.workspace.root / "planted").write_text("a snapshot would find this")
    do(env, "List Files", dir_path=".")
    do(env, "Read File", file_name="a.py")
    do(env, "Inspect Script Lines", script_name="a.py", start_line_number=1, end_line_number=1)
    do(env, "Nonsense")
    assert manifest(env) == before
    do(env, "Append File", file_name="a.py", content="y = 2\n")
    assert b"planted" in manifest(env)


def test_the_run_ends_at_its_step_limit(open_env: OpenEnv, do: Do) -> None:
    env = open_env(steps=2)
    do(env, "List Files")
    assert not env.done
    do(env, "Nonsense")  # a mistake costs a step too
    assert env.ending == "steps"
    with pytest.raises(RunOver, match="steps"):
        do(env, "List Files")
    assert len(env.steps) == len(trace(env)) == 2


def test_a_script_is_killed_at_the_time_limit_of_the_run(open_env: OpenEnv, do: Do) -> None:
    env = open_env(hours=1.5 / 3600)
    do(env, "Write File", file_name="slow.py", content="print('started', flush=True)\nwhile True: pass\n")
    observation = do(env, "Execute Script", script_name="slow.py")
    assert "killed: time limit" in observation and "started" in observation
    assert env.ending == "time" and env.seconds_left == 0
    with pytest.raises(RunOver, match="time"):
        do(env, "List Files")


def test_a_final_answer_ends_the_run_and_an_invalid_one_does_not(env: Environment, do: Do) -> None:
    assert "final_answer is missing" in do(env, "Final Answer")
    assert not env.done
    assert do(env, "Final Answer", final_answer="done") == "Submitted."
    assert env.ending == "submitted"
    with pytest.raises(RunOver):
        do(env, "List Files")


@pytest.mark.parametrize("locked", [".", "data", "data/in"])
def test_a_script_cannot_make_folders_inaccessible_to_later_commands(
    open_env: OpenEnv, do: Do, variant: Callable[..., Path], toy: Path, locked: str
) -> None:
    toml = (toy / "task.toml").read_text().replace('"data/"', '"data/in/kept.csv"')
    folder = variant({"task.toml": toml})
    (folder / "starter" / "data" / "in").mkdir(parents=True)
    (folder / "starter" / "data" / "in" / "kept.csv").write_text("1")
    env = open_env(setup=prepare_setup(str(folder), "open", "bwrap", print))
    do(env, "Write File", file_name="chmod.py", content=f"import os; os.chmod({locked!r}, 0)")
    do(env, "Write File", file_name="read.py", content="print(open('data/in/kept.csv').read())")
    assert "exit code 0" in do(env, "Execute Script", script_name="chmod.py")
    assert do(env, "Execute Script", script_name="read.py").endswith("\n1")


def test_a_workspace_over_its_disk_limit_is_restored_and_the_observation_says_so(
    env: Environment, do: Do
) -> None:
    script = "for name in ('big', 'bigger'): open(name, 'wb').truncate(2**27)\n"
    script += "open('train.py', 'w').write('damaged')\n"
    do(env, "Write File", file_name="fill.py", content=script)
    observation = do(env, "Execute Script", script_name="fill.py")
    assert "the workspace was restored to its state before this step" in observation
    listed = do(env, "List Files")
    assert "big" not in listed and "fill.py" in listed
    assert "GUESS" in do(env, "Read File", file_name="train.py")
    assert trace(env)[1].notes


def test_the_stored_history_of_the_workspace_stays_within_its_limit(open_env: OpenEnv, do: Do) -> None:
    env = open_env(history_gb=0.003)
    do(env, "Write File", file_name="grow.py", content="import os; open('f', 'wb').write(os.urandom(10**6))")
    observations = [do(env, "Execute Script", script_name="grow.py") for _ in range(6)]
    refused = ["history of the workspace would be larger than 3.2 MB" in text for text in observations]
    assert refused == [False] * 3 + [True] * 3
    assert sum(path.stat().st_size for path in env.context.store.folder.rglob("*") if path.is_file()) < 3.3e6
    assert "f" in do(env, "List Files") and env.fault is None
    assert do(env, "Write File", file_name="g", content="small") == "File g written."


def test_a_file_action_that_exceeds_the_disk_limit_is_undone(open_env: OpenEnv, do: Do) -> None:
    env = open_env(disk_gb=0.001)
    assert "the workspace was restored" in do(env, "Write File", file_name="big", content="x" * 2_000_000)
    assert "big" not in do(env, "List Files")
    env = open_env("many", files=50)
    do(env, "Write File", file_name="many.py", content="for i in range(100): open(f'f{i}', 'w')\n")
    assert "more than 50 files" in do(env, "Execute Script", script_name="many.py")
    assert "f99" not in do(env, "List Files")


RESUME_BY_TIMER = """
import ctypes, threading, time
libc = ctypes.CDLL(None)
event = (ctypes.c_int * 16)(0, 0, 18, 0)  # notify by signal 18, SIGCONT
timer, interval = ctypes.c_void_p(), (ctypes.c_long * 4)(0, 200_000_000, 0, 200_000_000)
assert not libc.timer_create(1, event, ctypes.byref(timer))
assert not libc.timer_settime(timer, 0, interval, None)
def edit(after):
    while True:
        time.sleep(0.01)
        if time.monotonic() > after: open("late.txt", "w").write("late")
threading.Thread(target=edit, args=[time.monotonic() + 1]).start()
variable = 1
"""


def test_an_interpreter_that_resumes_itself_is_terminated_and_its_changes_are_undone(
    env: Environment, do: Do, until: Callable[[Callable[[], object]], None]
) -> None:
    assert do(env, "Python REPL", command=RESUME_BY_TIMER) == "(no output)"
    until((env.context.workspace.root / "late.txt").exists)
    observation = do(env, "List Files")
    assert "late.txt" not in observation
    assert "resumed after its step and was terminated; the workspace was restored" in observation
    assert do(env, "Python REPL", command="'variable' in globals()") == "False"
    assert "resumed" not in do(env, "List Files") and "late.txt" not in env.context.store.state(4)


def test_no_command_starts_while_an_interpreter_is_running(
    env: Environment, do: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(env, "Python REPL", command="1")
    # It resumes between the check before the step and the one before the sandbox starts.
    checks = iter([True, False, False])
    monkeypatch.setattr(Repl, "stayed_paused", property(lambda self: next(checks)))
    observation = do(env, "Execute Script", script_name="train.py")
    assert (
        observation.startswith("Error: ")
        and "resumed after its step" in observation
        and env.steps[-1].execution is None
    )
    assert env.context.repl is None and "exit code 0" in do(env, "Execute Script", script_name="train.py")


def test_a_process_that_changes_files_during_a_snapshot_is_terminated_and_the_run_continues(
    env: Environment, do: Do
) -> None:
    for _ in range(6):
        do(env, "Python REPL", command=RENAME_CODE)
        do(env, "Execute Script", script_name="train.py")
    observations = "".join(step.observation for step in env.steps)
    assert "A background process resumed after its step and was terminated" in observations
    assert env.fault is None


def test_a_script_can_delete_everything_except_read_only_files(env: Environment, do: Do) -> None:
    script = "import os, shutil\nfor n in os.listdir('.'):\n    shutil.rmtree(n, True)\n"
    script += "    try: os.remove(n)\n    except OSError: pass\n"
    do(env, "Write File", file_name="wipe.py", content=script)
    assert "exit code 0" in do(env, "Execute Script", script_name="wipe.py")
    assert do(env, "List Files").split() == ["data/", "questions.csv", "(23", "B)"]
    assert "does not exist" in do(env, "Execute Script", script_name="wipe.py")
    do(env, "Undo Edit Script", script_name="train.py")
    assert "exit code 0" in do(env, "Execute Script", script_name="train.py")


READ_ONLY_PATHS = (
    "questions.csv ./questions.csv data/../questions.csv /workspace/questions.csv data//deep/./more.csv"
)
READ_ONLY_PATHS += " data/deep/more.csv data/new.csv data //workspace//data/x"


@pytest.mark.parametrize("path", READ_ONLY_PATHS.split())
def test_every_writing_action_refuses_read_only_files_however_the_path_is_written(
    env: Environment, do: Do, path: str
) -> None:
    before = manifest(env)
    for args in (
        {"action": "Write File", "file_name": path, "content": "x"},
        {"action": "Append File", "file_name": path, "content": "x"},
        {"action": "Copy File", "source": "train.py", "destination": path},
        {"action": "Undo Edit Script", "script_name": path},
    ):
        observation = do(env, **args)
        assert "read-only" in observation, observation
    assert manifest(env) == before


def test_a_script_cannot_change_read_only_files(env: Environment, do: Do) -> None:
    script = """
import os, shutil
def attempt(name, operation):
    try:
        operation()
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
    observation = do(env, "Execute Script", script_name="attack.py")
    assert "exit code 0" in observation and "DONE" not in observation
    assert do(env, "Read File", file_name="questions.csv").startswith("id\n0\n1\n")


def test_read_only_files_that_were_changed_anyway_are_restored(env: Environment, do: Do) -> None:
    original = (env.context.workspace.root / "questions.csv").read_bytes()
    (env.context.workspace.root / "questions.csv").write_text("tampered with")
    (env.context.workspace.root / "data" / "deep" / "more.csv").unlink()
    observation = do(env, "Write File", file_name="notes", content="x")
    assert "[Read-only files were changed and have been restored: " in observation
    assert "questions.csv" in observation and "data/deep/more.csv" in observation
    assert (env.context.workspace.root / "questions.csv").read_bytes() == original
    assert env.context.store.read_content(1, "questions.csv") == original
    assert env.context.store.read_content(1, "notes") == b"x"


def test_links_to_the_answers_cannot_be_followed(env: Environment, do: Do, setup) -> None:
    secret = setup.data.private / "answers.csv"
    script = f"import os\nos.remove('train.py')\nos.symlink({str(secret)!r}, 'train.py')\n"
    script += f"os.symlink({str(secret.parent)!r}, 'folder')\nos.symlink('..', 'up')\n"
    do(env, "Write File", file_name="link.py", content=script)
    assert "exit code 0" in do(env, "Execute Script", script_name="link.py")
    for observation in (
        do(env, "Read File", file_name="train.py"),
        do(env, "Inspect Script Lines", script_name="train.py", start_line_number=1, end_line_number=5),
        do(env, "Copy File", source="train.py", destination="copy"),
        do(env, "Execute Script", script_name="train.py"),
        do(env, "Append File", file_name="train.py", content="x"),
        do(env, "Read File", file_name="folder/answers.csv"),
        do(env, "List Files", dir_path="folder"),
        do(env, "Write File", file_name="up/escaped", content="x"),
    ):
        assert observation.startswith("Error: ") and "link" in observation, observation
    assert f"train.py -> {secret}" in do(env, "List Files")
    assert secret.read_text().startswith("id,value")


def test_a_fault_is_raised_again_if_the_agent_catches_it_and_continues(env: Environment, do: Do) -> None:
    env.context.outputs_dir.write_text("a file where the folder should be")
    with pytest.raises(Fault, match="exists"):
        do(env, "Execute Script", script_name="train.py")
    with pytest.raises(Fault, match="exists"):
        do(env, "List Files")
    assert env.fault and trace(env) == []


def test_a_resumed_run_replays_its_record_and_continues(open_env: OpenEnv, do: Do) -> None:
    first = open_env()
    observations = [
        do(first, "Write File", file_name="a", content="1"),
        do(first, "Execute Script", script_name="train.py"),
    ]
    clock = first.steps[-1].clock
    (first.context.workspace.root / "a").write_text("changed after the kill")
    env = open_env()
    assert env.elapsed_seconds == 0 and env.next_recorded_call == first.steps[0].call
    assert do(env, "Write File", file_name="a", content="1") == observations[0]
    assert do(env, "Execute Script", script_name="train.py") == observations[1]
    assert env.next_recorded_call is None and env.elapsed_seconds >= clock
    assert do(env, "Read File", file_name="a") == "1"
    assert env.steps[-1].clock >= clock and [step.number for step in trace(env)] == [1, 2, 3]


def test_the_time_of_a_replay_is_not_counted(open_env: OpenEnv, do: Do) -> None:
    env = open_env(hours=2 / 3600)
    for number in range(3):
        do(env, "Python REPL", command=f"import time; time.sleep(0.15); x = {number}")
    used = env.steps[-1].clock
    env = open_env()
    for number in range(3):
        do(env, "Python REPL", command=f"import time; time.sleep(0.15); x = {number}")
    assert used <= env.elapsed_seconds < used + 0.2
    assert do(env, "Python REPL", command="x") == "2"


def test_a_replay_that_diverges_is_a_fault_that_says_how_to_continue(open_env: OpenEnv, do: Do) -> None:
    env = open_env()
    do(env, "List Files")
    do(env, "Write File", file_name="a", content="1")
    env = open_env()
    do(env, "List Files")
    message = r"Replay diverged at step 2: recorded Write File, got Read File\. Resume with --from-step 1"
    with pytest.raises(Fault, match=message):
        do(env, "Read File", file_name="a")
    env = open_env()
    do(env, "List Files")
    with pytest.raises(Fault, match="Write File with other arguments"):
        do(env, "Write File", file_name="a", content="2")


def test_a_replay_may_have_other_thoughts(open_env: OpenEnv) -> None:
    open_env().step(Call(action="List Files", thought="hm \ud800"))
    env = open_env()
    assert env.next_recorded_call and env.next_recorded_call.thought == "hm \\ud800"
    env.step(Call(action="List Files", thought="aha"))
    assert not env.next_recorded_call


def test_a_workspace_folder_that_a_script_removes_is_created_again(
    open_env: OpenEnv, do: Do, toy: Path
) -> None:
    env = open_env(setup=prepare_setup(str(toy), "open", "none", lambda line: None))
    do(env, "Write File", file_name="gone.py", content="import os, shutil\nshutil.rmtree(os.getcwd())\n")
    observation = do(env, "Execute Script", script_name="gone.py")
    assert "Read-only files were changed and have been restored" in observation
    assert "train.py" not in do(env, "List Files") and "questions.csv" in do(env, "List Files")


def test_environments_share_the_argument_classes_of_their_actions(
    open_env: Callable[..., Environment],
) -> None:
    one, other = (open_env(name).actions["Read File"] for name in ("one", "other"))
    assert one.arguments is other.arguments  # each is large, and a batch has thousands of runs


def test_the_clock_can_wait_for_the_next_step_of_a_new_and_of_a_resumed_run(open_env, do) -> None:
    env = open_env()
    env.start_clock_at_next_step()
    assert env.elapsed_seconds == 0.0
    do(env, "List Files")
    (first,) = env.steps
    assert first.clock == first.seconds
    resumed = open_env()
    do(resumed, "List Files")
    resumed.start_clock_at_next_step()
    assert resumed.elapsed_seconds == first.clock
    do(resumed, "Read File", file_name="train.py")
    assert resumed.steps[1].clock == pytest.approx(first.clock + resumed.steps[1].seconds, abs=1e-3)
