"""The interpreter between steps: it keeps its state, is paused, and cannot avoid either."""

import json
import time
from collections.abc import Callable, Iterator

import pytest
from script_runner import ScriptRunner

from mlagentbench.records import Execution
from mlagentbench.sandbox.output import MAX_OUTPUT_FILE_BYTES, CommandOutput
from mlagentbench.sandbox.repl import Repl

RunCode = Callable[..., tuple[Execution | None, str]]


@pytest.fixture
def repl(run: ScriptRunner) -> Iterator[Repl]:
    interpreter = Repl(run.sandbox, run.spec)
    yield interpreter
    interpreter.close()
    assert run.survivors() == []


@pytest.fixture
def run_code(repl: Repl, run: ScriptRunner) -> RunCode:
    def execute(code: str, timeout_s: float = 20) -> tuple[Execution | None, str]:
        with CommandOutput(run.folder / "step.txt") as output:
            execution = repl.run(code, timeout_s, output)
        return execution, output.text.strip()

    return execute


def test_variables_are_kept_and_the_last_value_is_shown(run_code: RunCode) -> None:
    assert run_code("x = 20") == (None, "")
    assert run_code("def f(y):\n    return x + y\nf(1)") == (None, "21")
    assert run_code("print('a'); x; None") == (None, "a")
    assert run_code("import os; os.getcwd(), os.environ['SEED']") == (None, "('/workspace', '7')")
    assert run_code("") == (None, "")


def test_an_error_is_shown_and_the_interpreter_continues(run_code: RunCode) -> None:
    run_code("x = 1")
    assert "ZeroDivisionError" in run_code("x / 0")[1]
    assert "SyntaxError" in run_code("x = = 2")[1]
    assert "SystemExit" in run_code("import sys; sys.exit(3)")[1]
    assert "KeyboardInterrupt" in run_code("raise KeyboardInterrupt")[1]
    assert "RecursionError" in run_code("def f(): f()\nf()")[1]
    assert "EOFError" in run_code("input()")[1]
    assert run_code("x") == (None, "1")


def test_a_traceback_shows_the_frames_of_the_command_only(run_code: RunCode) -> None:
    assert run_code("def f():\n    return {}['a']\nf()")[1] == (
        "Traceback (most recent call last):\n"
        '  File "<command>", line 3, in <module>\n'
        '  File "<command>", line 2, in f\n'
        "KeyError: 'a'"
    )
    assert run_code("x = = 2")[1].startswith('File "<command>", line 1\n    x = = 2\n')
    library_error = run_code("import json\njson.loads('')")[1]
    assert "json/decoder.py" in library_error and "repl.py" not in library_error


@pytest.mark.parametrize(
    "end", ["import os; os._exit(5)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_an_interpreter_that_exits_is_reported(end: str, run_code: RunCode) -> None:
    execution, text = run_code(f"print('before')\n{end}")
    assert execution is not None
    assert (execution.exit_code in (5, 137), execution.limit, text) == (True, None, "before")


def test_an_endless_loop_is_killed_at_the_limit_and_a_new_interpreter_can_start(
    run: ScriptRunner, run_code: RunCode
) -> None:
    execution, text = run_code("print('started')\nwhile True: pass", timeout_s=0.7)
    assert execution is not None
    assert (execution.limit, text) == ("time", "started")
    assert run.survivors() == []
    again = Repl(run.sandbox, run.spec)
    try:
        assert again.run("print(1)", 20, CommandOutput()) is None
    finally:
        again.close()


BUSY_CODE = """
import threading, subprocess, sys
def write():
    n = 0
    while True:
        n += 1
        with open('ticks', 'a') as file: file.write('x')
for _ in range(3): threading.Thread(target=write, daemon=True).start()
child = subprocess.Popen([sys.executable, '-c', '''
import os
if os.fork(): os._exit(0)
os.setsid()
while True:
    with open('daemon', 'a') as file: file.write('x')
    try:
        if os.fork(): os._exit(0)
    except BlockingIOError: pass  # zombies count until they are reaped
'''])
"""


def test_nothing_runs_between_two_commands(run: ScriptRunner, run_code: RunCode) -> None:
    sizes = "import os\nwhile not (os.path.exists('ticks') and os.path.exists('daemon')): pass"
    assert run_code(BUSY_CODE)[0] is None
    assert run_code(sizes)[0] is None
    files = [run.workspace / "ticks", run.workspace / "daemon"]
    before = [(path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    assert run("import time; time.sleep(0.3); print('another step')").exit_code == 0
    assert [(path.stat().st_size, path.stat().st_mtime_ns) for path in files] == before
    size = before[0][0]
    assert run_code(f"while os.path.getsize('ticks') <= {size}: pass") == (None, "")  # and then it continues


def test_a_thread_that_keeps_printing_does_not_hide_the_end_of_a_command(run_code: RunCode) -> None:
    run_code("import threading, os\ndef keep_printing():\n    while True: os.write(1, b'y' * 10000)")
    started = time.monotonic()
    execution, text = run_code("threading.Thread(target=keep_printing, daemon=True).start(); print('done')")
    assert execution is None
    assert len(text) < 20_000
    assert run_code("1 + 1")[0] is None
    assert time.monotonic() - started < 10


def test_a_flood_of_output_is_cut_and_the_interpreter_continues(run: ScriptRunner, run_code: RunCode) -> None:
    execution, text = run_code("for _ in range(100): print('z' * 1_000_000)")
    assert execution is None
    assert len(text) < 20_000
    assert (run.folder / "step.txt").stat().st_size == MAX_OUTPUT_FILE_BYTES
    assert run_code("2") == (None, "2")


def test_an_interpreter_that_closes_its_output_continues(run_code: RunCode) -> None:
    run_code("import sys, os; sys.stdout.close()")
    assert run_code("x = 3")[0] is None
    run_code("os.close(1); os.close(2)")
    assert run_code("open('seen', 'w').write(str(x))")[0] is None


def test_a_process_name_that_is_not_utf8_is_no_fault(run_code: RunCode) -> None:
    run_code("import ctypes; ctypes.CDLL(None).prctl(15, bytes([255, 254, 41, 10]))")
    assert run_code("1 + 1") == (None, "2")


LINGERING_CODE = """
import os, socket, struct
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
server.bind(("127.0.0.1", 0))
server.listen(1)
client = socket.create_connection(server.getsockname())
other, _ = server.accept()
client.setblocking(False)
try:
    while True: client.send(bytes(1 << 16))
except BlockingIOError: pass
client.setblocking(True)
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30))
numbers = [n for n in range(3, 20) if os.path.exists(f"/proc/self/fd/{n}")]
channel = next(n for n in numbers if "socket" in os.readlink(f"/proc/self/fd/{n}"))
channel = socket.socket(fileno=os.dup(channel))
socket.send_fds(channel, [b"x"], [client.fileno()])
client.close()
"""


def test_a_lingering_socket_does_not_block_the_process_that_closes_it(run_code: RunCode) -> None:
    assert run_code(LINGERING_CODE)[0] is None
    execution, text = run_code("import time; time.sleep(1000)", timeout_s=1)
    assert execution is not None and execution.limit == "time" and execution.seconds < 10, text


def test_printed_output_cannot_imitate_the_end_of_a_command(run_code: RunCode) -> None:
    fake = "print('<' + 'a' * 32 + '>', flush=True); print(json.dumps({'code': '', 'token': 'a' * 32}))"
    execution, text = run_code(f"import json, time\n{fake}\ntime.sleep(0.2)\nprint('after')")
    assert execution is None
    assert text.endswith("after")


def test_an_interpreter_that_reports_completion_too_early_harms_only_itself(
    run: ScriptRunner, run_code: RunCode
) -> None:
    early_reply = """
import os, sys
frames = [sys._getframe(n) for n in range(1, 5)]
command = next(frame.f_locals['command'] for frame in frames if 'command' in frame.f_locals)
for fd in range(3, 10):
    try: os.write(fd, command['token'].encode())
    except OSError: pass
with open('late', 'a') as file:
    while True: file.write('x' * 100); file.flush()
"""
    execution, _ = run_code(early_reply)
    assert execution is None
    late = run.workspace / "late"
    before = late.stat().st_size if late.exists() else 0
    assert run("import time; time.sleep(0.2)").exit_code == 0
    assert (late.stat().st_size if late.exists() else 0) == before  # it is paused like any other
    # And it does not receive the next command.
    execution, _ = run_code("print('x' * 10)\n#" + "x" * 1_000_000, timeout_s=0.7)
    assert execution is not None
    assert execution.limit in ("time", "disk")  # by the time limit, or by what it wrote meanwhile


def test_an_interpreter_that_closes_the_channel_is_stopped(run_code: RunCode) -> None:
    execution, _ = run_code("import os; os.closerange(3, 100); print('bye')")
    assert execution is not None
    assert (execution.exit_code, execution.limit) == (1, None)


def test_the_memory_limit_applies_to_the_interpreter(run_code: RunCode) -> None:
    execution, text = run_code("print('started')\nkept = [bytearray(b'x' * (1 << 24)) for _ in range(1000)]")
    assert execution is not None
    assert (execution.limit, text) == ("memory", "started")


def test_a_megabyte_of_code_with_any_characters_arrives(run_code: RunCode) -> None:
    characters = "é\u2028🙂'"
    assert run_code(f"len({json.dumps(characters * 200_000, ensure_ascii=False)})") == (
        None,
        str(len(characters) * 200_000),
    )


def test_modules_of_the_workspace_can_be_imported_and_those_of_the_harness_cannot(
    run: ScriptRunner, run_code: RunCode
) -> None:
    (run.workspace / "helper.py").write_text("value = 5")
    assert run_code("import helper; helper.value") == (None, "5")
    assert "ModuleNotFoundError" in run_code("import mlagentbench")[1]
    assert "Error" in run_code("open('/opt/repl.py', 'a')")[1]


def test_the_interpreter_works_without_a_sandbox(run_unsandboxed: ScriptRunner) -> None:
    repl = Repl(run_unsandboxed.sandbox, run_unsandboxed.spec)
    try:
        output = CommandOutput()
        assert repl.run("x = 4", 20, CommandOutput()) is None
        assert repl.run("x", 20, output) is None
        assert output.text.strip() == "4"
    finally:
        repl.close()
