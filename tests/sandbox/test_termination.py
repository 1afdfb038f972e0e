"""Everything that a command starts dies with it, however it tries to survive."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from script_runner import ScriptRunner, find_cgroups, find_marked_pids, list_names

from mlagentbench.sandbox.cgroups import find_controller_folders

HARNESS = Path(__file__).parent / "harness.py"

FOREVER = "print('started', flush=True)\nwhile True: pass\n"
SURVIVAL_ATTEMPTS = {
    "loops forever": FOREVER,
    "ignores every signal that can be ignored": """
import signal
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
"""
    + FOREVER,
    "forks": "import os\nfor _ in range(4): os.fork()\n" + FOREVER,
    "becomes a daemon": """
import os, sys
print('started', flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    while True: pass
while True: pass
""",
    "starts threads": """
import threading, time
for _ in range(8): threading.Thread(target=lambda: time.sleep(1000)).start()
print('started', flush=True)
""",
    "closes its output and continues": """
print('started', flush=True)
import os; os.closerange(0, 9)
while True: pass
""",
    "stops itself": "import os, signal\nprint('started', flush=True)\nos.kill(0, signal.SIGSTOP)\n" + FOREVER,
    "sleeps in a child that holds the output": """
print('started', flush=True)
import os; os.system('sleep 1000')
""",
}


FORK_AND_LOOP = "import os\nif os.fork() == 0: os.setsid(); os.fork()\n" + FOREVER


@pytest.mark.parametrize("attempt", SURVIVAL_ATTEMPTS)
def test_a_script_is_killed_at_its_time_limit_if_it(attempt: str, run: ScriptRunner) -> None:
    """The output before that is kept."""
    result = run(SURVIVAL_ATTEMPTS[attempt], timeout_s=0.6)
    assert (result.limit, result.exit_code) == ("time", None)
    assert "started" in result.text
    assert result.execution.seconds < 5
    assert run.survivors() == []


def test_a_daemon_of_a_successful_script_is_killed(run: ScriptRunner) -> None:
    result = run("""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    os.closerange(0, 10)
    while True: open('late.txt', 'a').write('x')
time.sleep(0.2)
print(os.path.exists('late.txt'))
""")
    assert (result.limit, result.exit_code, result.text.strip()) == (None, 0, "True")
    assert run.survivors() == []
    size = (run.workspace / "late.txt").stat().st_size
    assert run("print(open('late.txt').read().count('x'))").text.strip() == str(size)


def test_the_exit_code_is_that_of_the_script(run: ScriptRunner) -> None:
    assert run("raise SystemExit(7)").exit_code == 7
    assert run("import os; os.kill(os.getpid(), 9)").exit_code == 128 + 9
    assert run("import os; os.abort()").exit_code == 128 + 6
    assert run("import ctypes; ctypes.string_at(0)").exit_code == 128 + 11
    assert not list(run.workspace.glob("core*"))


@pytest.mark.parametrize("sandbox", ["bwrap", "none"])
def test_a_sandbox_dies_when_its_harness_is_killed(sandbox: str, run: ScriptRunner) -> None:
    if sandbox == "none" and not find_controller_folders():
        pytest.skip("without cgroups, the next harness cannot find what a killed one left")
    harness = start_and_kill_harness(run, sandbox)
    if sandbox == "bwrap":
        wait_until_gone(run.survivors)
    # The next harness removes the cgroups of the dead one, and kills what still runs in them.
    next_harness = start_harness(run, "bwrap", "print('done')")
    next_harness.communicate(timeout=30)
    wait_until_gone(run.survivors)
    assert find_cgroups(harness.pid) == []


def test_a_harness_killed_at_any_moment_of_the_start_leaves_no_process(run: ScriptRunner) -> None:
    code = "import time\nopen('result', 'w')\ntime.sleep(1000)"
    for milliseconds in (0, 4, 8, 12, 18, 25):
        harness = start_harness(run, "bwrap", code, announce=True)
        assert harness.stdout is not None
        assert harness.stdout.readline() == b"starting\n"
        select.select([], [], [], milliseconds / 1000)
        harness.kill()
        harness.communicate()
    wait_until_gone(run.survivors)
    wait_until_gone(lambda: [pid for pid in filter(str.isdigit, list_names("/proc")) if _is_orphan(pid)])
    start_harness(run, "bwrap", "print('done')").communicate(timeout=30)


def test_the_cgroups_of_a_zombie_harness_are_removed(run: ScriptRunner) -> None:
    if not find_controller_folders():
        pytest.skip("no cgroups on this machine")
    harness = start_harness(run, "bwrap", "print('started', flush=True)\nwhile True: pass")
    assert harness.stdout is not None and b"started" in harness.stdout.readline()
    assert find_cgroups(harness.pid)
    harness.kill()
    os.waitid(
        os.P_PID, harness.pid, os.WEXITED | os.WNOWAIT
    )  # leaves a zombie, as if its parent did not reap
    start_harness(run, "bwrap", "print('done')").communicate(timeout=30)
    left = find_cgroups(harness.pid)
    harness.communicate()
    assert left == []


def _is_orphan(pid: str) -> bool:
    """Whether it is an orphaned process of a sandbox."""
    try:
        state, parent = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[:2]
        name = Path("/proc", pid, "comm").read_text().strip()
        return parent == "1" and state not in "ZX" and name in ("bwrap", "setpriv", "prlimit")
    except OSError:
        return False


def start_harness(
    run: ScriptRunner, sandbox: str, code: str, announce: bool = False
) -> "subprocess.Popen[bytes]":
    (run.workspace / "script.py").write_text(code)
    command = [sys.executable, str(HARNESS), sandbox, str(run.workspace), run.marker, "60"]
    environment = {**os.environ, "ANNOUNCE": "1"} if announce else None
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)


def start_and_kill_harness(run: ScriptRunner, sandbox: str) -> "subprocess.Popen[bytes]":
    """Kill a harness whose script has started child processes."""
    harness = start_harness(run, sandbox, FORK_AND_LOOP)
    assert harness.stdout is not None
    assert b"started" in harness.stdout.readline()
    assert len(find_marked_pids(run.marker)) >= 2
    harness.kill()
    harness.wait()
    harness.stdout.close()
    return harness


def wait_until_gone(find: Callable[[], list[str]]) -> None:
    """Wait for each process with a pidfd, until none is found."""
    deadline = time.monotonic() + 20
    while left := find():  # a dying process may have started another
        with suppress(ProcessLookupError), os.fdopen(os.pidfd_open(int(left[0]))) as end:
            assert select.select([end], [], [], deadline - time.monotonic())[0], (
                f"process {left[0]} is still running"
            )


def test_a_script_can_kill_only_processes_of_its_own_sandbox(run: ScriptRunner) -> None:
    result = run(f"""
import os, signal
for pid in (1, {os.getpid()}, {os.getppid()}):
    try: os.kill(pid, signal.SIGKILL)
    except OSError as error: print(error.__class__.__name__)
try: os.kill(-1, signal.SIGTERM)
except OSError as error: print(error.__class__.__name__)
print('still here')
""")
    assert result.exit_code == 0
    assert "still here" in result.text
