from collections.abc import Callable

from mlagentbench.environment.environment import Environment

Do = Callable[..., str]
Open = Callable[..., Environment]


def repl(env: Environment, do: Do, command: str) -> str:
    return do(env, "Python REPL", command=command)


def test_variables_live_from_step_to_step(env: Environment, do: Do) -> None:
    assert repl(env, do, "x = 20") == "(no output)"
    do(env, "List Files")
    assert repl(env, do, "x + 1") == "21"
    assert repl(env, do, "print('a'); 'b'") == "a\n'b'"
    assert "ZeroDivisionError" in repl(env, do, "1 / 0")
    assert "SyntaxError" in repl(env, do, "def f(:")
    assert repl(env, do, "x") == "20"


def test_it_works_on_the_files_of_the_workspace(env: Environment, do: Do) -> None:
    repl(env, do, "open('made.txt', 'w').write('by the interpreter')")
    assert do(env, "Read File", file_name="made.txt") == "by the interpreter"
    do(env, "Write File", file_name="given.txt", content="by an action")
    assert repl(env, do, "open('given.txt').read()") == "'by an action'"
    assert "read-only" in repl(env, do, "open('questions.csv', 'w')").lower()


def test_an_interpreter_that_ends_is_replaced_and_the_agent_is_told(env: Environment, do: Do) -> None:
    repl(env, do, "x = 1")
    seen = repl(env, do, "import os; os._exit(3)")
    assert seen.startswith("[exit code 3, ") and "The interpreter ended" in seen
    assert "NameError" in repl(env, do, "x")


def test_an_endless_command_is_cut_and_not_repeated_by_a_resume(open_env: Open, do: Do) -> None:
    commands = ["x = 1", "while True: pass", "y = 2"]
    env = open_env(script_minutes=0.7 / 60)
    for command in commands:
        repl(env, do, command)
    assert "killed: time limit" in env.steps[1].observation
    env = open_env()
    for command in commands:
        repl(env, do, command)
    assert env.elapsed_seconds < 1.5
    assert repl(env, do, "y") == "2"
    assert "NameError" in repl(env, do, "x")


def test_a_resume_rebuilds_the_variables_and_leaves_files_and_outputs_as_they_were(
    open_env: Open, do: Do
) -> None:
    commands = ["n = len(open('train.py').read())", "open('log', 'a').write('once')", "print(n)"]

    def act(env: Environment) -> None:
        repl(env, do, commands[0])
        do(env, "Write File", file_name="train.py", content="other")
        for command in commands[1:]:
            repl(env, do, command)
        do(env, "Append File", file_name="log", content="+")

    first = open_env()
    act(first)
    length = first.steps[3].observation
    first.close()
    outputs = {path.name: path.stat().st_mtime_ns for path in first.context.outputs_dir.iterdir()}
    env = open_env()
    act(env)
    assert repl(env, do, "n") == length  # of the train.py that was there at that step
    assert do(env, "Read File", file_name="log") == "once+"
    assert do(env, "Read File", file_name="train.py") == "other"
    assert (
        outputs.items()
        <= {path.name: path.stat().st_mtime_ns for path in env.context.outputs_dir.iterdir()}.items()
    )


def test_what_it_started_stands_still_between_steps(env: Environment, do: Do) -> None:
    code = "import threading, time\ndef tick():\n    while True: open('ticks', 'a').write('.')\n"
    repl(env, do, code + "threading.Thread(target=tick, daemon=True).start(); time.sleep(0.2)")
    ticks = env.context.workspace.root / "ticks"
    before = ticks.stat().st_mtime_ns
    do(env, "Execute Script", script_name="train.py")
    assert ticks.stat().st_mtime_ns == before


MEET = """
import os, socket
os.mkdir('deep')
listening = [socket.socket(socket.AF_UNIX) for _ in range(2)]
for each, place in zip(listening, ('meet', 'deep/meet')):
    each.bind(place)
    each.listen()
os.chmod('deep', 0o555)
"""
HAND_OVER = """
import os, socket
for place in ('meet', 'deep/meet'):
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(place)
            socket.send_fds(client, [b'x'], [os.open('/usr', os.O_RDONLY)])
        print('handed over')
    except OSError as error:
        print(error.strerror)
"""


def test_a_script_and_the_interpreter_cannot_hand_each_other_open_folders(env: Environment, do: Do) -> None:
    assert repl(env, do, MEET) == "(no output)"
    do(env, "Write File", file_name="hand.py", content=HAND_OVER)
    seen = do(env, "Execute Script", script_name="hand.py")
    assert "handed over" not in seen and seen.count("No such file or directory") == 2


MAPPED = """
import mmap, time
open('helper.py', 'w').write('VALUE = 1 #')
file = open('helper.py', 'r+')
memory = mmap.mmap(file.fileno(), 0)
memory[8:9] = b'1'
time.sleep(0.05)
"""


def test_a_file_that_is_memory_of_the_interpreter_is_recorded_as_it_is(env: Environment, do: Do) -> None:
    repl(env, do, MAPPED)
    for number in (2, 3, 4):  # the kernel notes the time of the first change only
        repl(env, do, f"memory[8:9] = b'{number}'")
        assert env.context.store.read_content(len(env.steps), "helper.py") == f"VALUE = {number} #".encode()
