"""The interpreter between steps: it remembers, it is frozen, and it cannot be talked out of either."""

import json
import time
from collections.abc import Callable, Iterator

import pytest
from conftest import Runner

from mlagentbench.records import Execution
from mlagentbench.sandbox.output import MAX_OUTPUT_FILE_BYTES, CommandOutput
from mlagentbench.sandbox.repl import Repl

RunCode = Callable[..., tuple[Execution | None, str]]


@pytest.fixture
def repl(run: Runner) -> Iterator[Repl]:
    found = Repl(run.sandbox, run.box)
    yield found
    found.close()
    assert run.survivors() == []


@pytest.fixture
def run_code(repl: Repl, run: Runner) -> RunCode:
    def execute(code: str, seconds: float = 20) -> tuple[Execution | None, str]:
        with CommandOutput(run.folder / "step.txt") as output:
            ended = repl.run(code, seconds, output)
        return ended, output.text.strip()

    return execute


def test_variables_are_kept_and_the_last_value_is_shown(run_code: RunCode) -> None:
    assert run_code("x = 20") == (None, "")
    assert run_code("def f(y):\n    return x + y\nf(1)") == (None, "21")
    assert run_code("print('a'); x; None") == (None, "a")
    assert run_code("import os; os.getcwd(), os.environ['SEED']") == (None, "('/workspace', '7')")
    assert run_code("") == (None, "")


def test_an_error_is_shown_and_the_interpreter_goes_on(run_code: RunCode) -> None:
    run_code("x = 1")
    assert "ZeroDivisionError" in run_code("x / 0")[1]
    assert "SyntaxError" in run_code("x = = 2")[1]
    assert "SystemExit" in run_code("import sys; sys.exit(3)")[1]
    assert "KeyboardInterrupt" in run_code("raise KeyboardInterrupt")[1]
    assert "RecursionError" in run_code("def f(): f()\nf()")[1]
    assert "EOFError" in run_code("input()")[1]
    assert run_code("x") == (None, "1")


@pytest.mark.parametrize(
    "end", ["import os; os._exit(5)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_an_interpreter_that_ends_itself_is_reported(end: str, run_code: RunCode) -> None:
    ended, text = run_code(f"print('before')\n{end}")
    assert ended is not None
    assert (ended.exit_code in (5, 137), ended.limit, text) == (True, None, "before")


def test_an_endless_loop_ends_at_the_limit_and_a_new_interpreter_begins(
    run: Runner, run_code: RunCode
) -> None:
    ended, text = run_code("print('begun')\nwhile True: pass", seconds=0.7)
    assert ended is not None
    assert (ended.limit, text) == ("time", "begun")
    assert run.survivors() == []
    again = Repl(run.sandbox, run.box)
    try:
        assert again.run("print(1)", 20, CommandOutput()) is None
    finally:
        again.close()


BUSY = """
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
    except BlockingIOError: pass  # those that have ended count until they are buried
'''])
"""


def test_nothing_moves_between_two_commands(run: Runner, run_code: RunCode) -> None:
    sizes = "import os\nwhile not (os.path.exists('ticks') and os.path.exists('daemon')): pass"
    assert run_code(BUSY)[0] is None
    assert run_code(sizes)[0] is None
    files = [run.workspace / "ticks", run.workspace / "daemon"]
    before = [(path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    assert run("import time; time.sleep(0.3); print('another step')").exit_code == 0
    assert [(path.stat().st_size, path.stat().st_mtime_ns) for path in files] == before
    size = before[0][0]
    assert run_code(f"while os.path.getsize('ticks') <= {size}: pass") == (None, "")  # and then it goes on


def test_a_thread_that_prints_all_the_time_does_not_hide_the_end_of_a_command(run_code: RunCode) -> None:
    run_code("import threading, os\ndef talk():\n    while True: os.write(1, b'y' * 10000)")
    started = time.monotonic()
    ended, text = run_code("threading.Thread(target=talk, daemon=True).start(); print('done')")
    assert ended is None
    assert len(text) < 20_000
    assert run_code("1 + 1")[0] is None
    assert time.monotonic() - started < 10


def test_a_flood_is_cut_and_the_interpreter_goes_on(run: Runner, run_code: RunCode) -> None:
    ended, text = run_code("for _ in range(100): print('z' * 1_000_000)")
    assert ended is None
    assert len(text) < 20_000
    assert (run.folder / "step.txt").stat().st_size == MAX_OUTPUT_FILE_BYTES
    assert run_code("2") == (None, "2")


def test_closing_its_output_does_not_stop_it(run_code: RunCode) -> None:
    run_code("import sys, os; sys.stdout.close()")
    assert run_code("x = 3")[0] is None
    run_code("os.close(1); os.close(2)")
    assert run_code("open('seen', 'w').write(str(x))")[0] is None


def test_a_name_that_is_no_text_is_no_fault(run_code: RunCode) -> None:
    run_code("import ctypes; ctypes.CDLL(None).prctl(15, bytes([255, 254, 41, 10]))")
    assert run_code("1 + 1") == (None, "2")


LINGERING = """
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


def test_a_socket_that_would_linger_does_not_hold_up_whoever_closes_it(run_code: RunCode) -> None:
    assert run_code(LINGERING)[0] is None
    ended, text = run_code("import time; time.sleep(1000)", seconds=1)
    assert ended is not None and ended.limit == "time" and ended.seconds < 10, text


def test_nothing_printed_passes_for_the_end_of_a_command(run_code: RunCode) -> None:
    fake = "print('<' + 'a' * 32 + '>', flush=True); print(json.dumps({'code': '', 'token': 'a' * 32}))"
    ended, text = run_code(f"import json, time\n{fake}\ntime.sleep(0.2)\nprint('after')")
    assert ended is None
    assert text.endswith("after")


def test_an_interpreter_that_answers_too_early_harms_only_itself(run: Runner, run_code: RunCode) -> None:
    cheat = """
import os, sys
command = next(f.f_locals['command'] for f in [sys._getframe(n) for n in range(1, 5)] if 'command' in f.f_locals)
for fd in range(3, 10):
    try: os.write(fd, command['token'].encode())
    except OSError: pass
with open('late', 'a') as file:
    while True: file.write('x' * 100); file.flush()
"""
    ended, _ = run_code(cheat)
    assert ended is None
    late = run.workspace / "late"
    before = late.stat().st_size if late.exists() else 0
    assert run("import time; time.sleep(0.2)").exit_code == 0
    assert (late.stat().st_size if late.exists() else 0) == before  # it is frozen like any other
    ended, _ = run_code("print('x' * 10)\n#" + "x" * 1_000_000, seconds=0.7)  # and does not take the next command
    assert ended is not None
    assert ended.limit in ("time", "disk")  # by the clock, or by what it wrote meanwhile


def test_an_interpreter_that_hangs_up_is_ended(run_code: RunCode) -> None:
    ended, _ = run_code("import os; os.closerange(3, 100); print('bye')")
    assert ended is not None
    assert (ended.exit_code, ended.limit) == (1, None)


def test_memory_and_disk_are_bounded_in_the_interpreter_too(run_code: RunCode) -> None:
    ended, text = run_code("print('begun')\nkept = [bytearray(b'x' * (1 << 24)) for _ in range(1000)]")
    assert ended is not None
    assert (ended.limit, text) == ("memory", "begun")


def test_code_of_a_megabyte_and_of_any_letters_arrives(run_code: RunCode) -> None:
    letters = "é\u2028🙂'"
    assert run_code(f"len({json.dumps(letters * 200_000, ensure_ascii=False)})") == (
        None,
        str(len(letters) * 200_000),
    )


def test_modules_of_the_workspace_can_be_imported_and_those_of_the_harness_cannot(
    run: Runner, run_code: RunCode
) -> None:
    (run.workspace / "helper.py").write_text("value = 5")
    assert run_code("import helper; helper.value") == (None, "5")
    assert "ModuleNotFoundError" in run_code("import mlagentbench")[1]
    assert "Error" in run_code("open('/opt/repl.py', 'a')")[1]


def test_without_a_sandbox_it_works_as_well(run_unsandboxed: Runner) -> None:
    repl = Repl(run_unsandboxed.sandbox, run_unsandboxed.box)
    try:
        output = CommandOutput()
        assert repl.run("x = 4", 20, CommandOutput()) is None
        assert repl.run("x", 20, output) is None
        assert output.text.strip() == "4"
    finally:
        repl.close()
