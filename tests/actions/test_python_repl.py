from collections.abc import Callable

from mlagentbench.environment.environment import Environment

Do = Callable[..., str]
OpenEnv = Callable[..., Environment]


def repl(env: Environment, do: Do, command: str) -> str:
    return do(env, "Python REPL", command=command)


def test_variables_are_kept_between_steps(env: Environment, do: Do) -> None:
    assert repl(env, do, "x = 20") == "(no output)"
    do(env, "List Files")
    assert repl(env, do, "x + 1") == "21"
    assert repl(env, do, "print('a'); 'b'") == "a\n'b'"
    assert "ZeroDivisionError" in repl(env, do, "1 / 0")
    assert "SyntaxError" in repl(env, do, "def f(:")
    assert repl(env, do, "x") == "20"


def test_the_interpreter_shares_the_files_of_the_workspace(env: Environment, do: Do) -> None:
    repl(env, do, "open('made.txt', 'w').write('by the interpreter')")
    assert do(env, "Read File", file_name="made.txt") == "by the interpreter"
    do(env, "Write File", file_name="given.txt", content="by an action")
    assert repl(env, do, "open('given.txt').read()") == "'by an action'"
    assert "read-only" in repl(env, do, "open('questions.csv', 'w')").lower()


def test_an_interpreter_that_exits_is_replaced_and_the_observation_says_so(env: Environment, do: Do) -> None:
    repl(env, do, "x = 1")
    observation = repl(env, do, "import os; os._exit(3)")
    assert observation.startswith("[exit code 3, ") and "The interpreter ended" in observation
    assert "NameError" in repl(env, do, "x")


def test_a_command_that_hits_the_time_limit_is_killed_and_not_repeated_on_resume(
    open_env: OpenEnv, do: Do
) -> None:
    commands = ["x = 1", "while True: pass", "y = 2"]
    env = open_env(script_minutes=0.7 / 60)
    for command in commands:
        repl(env, do, command)
    assert "killed: time limit" in env.steps[1].observation
    recorded_clock = env.steps[-1].clock
    env = open_env()
    for command in commands:
        repl(env, do, command)
    assert env.elapsed_seconds < recorded_clock + 0.5
    assert repl(env, do, "y") == "2"
    assert "NameError" in repl(env, do, "x")


def test_resuming_restores_the_variables_and_leaves_files_and_outputs_unchanged(
    open_env: OpenEnv, do: Do
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
    assert repl(env, do, "n") == length  # the length of train.py at that step
    assert do(env, "Read File", file_name="log") == "once+"
    assert do(env, "Read File", file_name="train.py") == "other"
    assert (
        outputs.items()
        <= {path.name: path.stat().st_mtime_ns for path in env.context.outputs_dir.iterdir()}.items()
    )


def test_threads_of_the_interpreter_are_paused_between_steps(env: Environment, do: Do) -> None:
    code = "import threading, time\ndef tick():\n    while True: open('ticks', 'a').write('.')\n"
    repl(env, do, code + "threading.Thread(target=tick, daemon=True).start(); time.sleep(0.2)")
    ticks = env.context.workspace.root / "ticks"
    before = ticks.stat().st_mtime_ns
    do(env, "Execute Script", script_name="train.py")
    assert ticks.stat().st_mtime_ns == before


LISTEN_ON_SOCKETS = """
import os, socket
os.mkdir('deep')
listeners = [socket.socket(socket.AF_UNIX) for _ in range(2)]
for listener, path in zip(listeners, ('socket', 'deep/socket')):
    listener.bind(path)
    listener.listen()
os.chmod('deep', 0o555)
"""
SEND_OPEN_FOLDER = """
import os, socket
for path in ('socket', 'deep/socket'):
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            socket.send_fds(client, [b'x'], [os.open('/usr', os.O_RDONLY)])
        print('sent')
    except OSError as error:
        print(error.strerror)
"""


def test_a_script_and_the_interpreter_cannot_exchange_file_descriptors(env: Environment, do: Do) -> None:
    assert repl(env, do, LISTEN_ON_SOCKETS) == "(no output)"
    do(env, "Write File", file_name="send.py", content=SEND_OPEN_FOLDER)
    observation = do(env, "Execute Script", script_name="send.py")
    assert "sent" not in observation and observation.count("No such file or directory") == 2


MAP_FILE = """
import mmap, time
open('helper.py', 'w').write('VALUE = 1 #')
file = open('helper.py', 'r+')
memory = mmap.mmap(file.fileno(), 0)
memory[8:9] = b'1'
time.sleep(0.05)
"""


def test_a_memory_mapped_file_is_recorded_with_its_current_content(env: Environment, do: Do) -> None:
    repl(env, do, MAP_FILE)
    for number in (2, 3, 4):  # the kernel updates the modification time only once
        repl(env, do, f"memory[8:9] = b'{number}'")
        assert env.context.store.read_content(len(env.steps), "helper.py") == f"VALUE = {number} #".encode()


def test_the_progress_of_a_script_in_the_background_is_visible_in_later_commands(
    env: Environment, do: Do
) -> None:
    code = "print('epoch 1', flush=True)\nwhile not open('go').read(): pass\nprint('epoch 2')"
    do(env, "Write File", file_name="slow.py", content=code)
    do(env, "Write File", file_name="go", content="")
    repl(
        env,
        do,
        "import subprocess\n"
        "script = subprocess.Popen(['python', 'slow.py'], stdout=open('log', 'w'))\n"
        "while not open('log').read(): pass",
    )
    assert do(env, "Read File", file_name="log") == "epoch 1\n"
    do(env, "Write File", file_name="go", content="now")
    assert repl(env, do, "script.wait(); print(open('log').read())").split("\n")[:2] == ["epoch 1", "epoch 2"]
