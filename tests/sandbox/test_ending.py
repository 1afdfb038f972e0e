"""Whatever a command starts ends with it, however hard that tries to stay."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import Runner, groups_of, marked, names

from mlagentbench.sandbox.cgroups import find_controller_folders

HARNESS = Path(__file__).parent / "harness.py"

FOREVER = "print('begun', flush=True)\nwhile True: pass\n"
STUBBORN = {
    "loops for ever": FOREVER,
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
print('begun', flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    while True: pass
while True: pass
""",
    "starts threads": """
import threading, time
for _ in range(8): threading.Thread(target=lambda: time.sleep(1000)).start()
print('begun', flush=True)
""",
    "closes its output and goes on": "print('begun', flush=True)\nimport os; os.closerange(0, 9)\nwhile True: pass",
    "stops itself": "import os, signal\nprint('begun', flush=True)\nos.kill(0, signal.SIGSTOP)\n" + FOREVER,
    "sleeps in a child that holds the output": "print('begun', flush=True)\nimport os; os.system('sleep 1000')",
}


@pytest.mark.parametrize("deed", STUBBORN)
def test_a_script_that(deed: str, run: Runner) -> None:
    """... is killed at its time limit, and what it printed is kept."""
    ran = run(STUBBORN[deed], seconds=0.6)
    assert (ran.limit, ran.exit_code) == ("time", None)
    assert "begun" in ran.text
    assert ran.execution.seconds < 5
    assert run.survivors() == []


def test_a_daemon_left_behind_by_a_script_that_ends_well_is_ended_with_it(run: Runner) -> None:
    ran = run("""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    os.closerange(0, 10)
    while True: open('late.txt', 'a').write('x')
time.sleep(0.2)
print(os.path.exists('late.txt'))
""")
    assert (ran.limit, ran.exit_code, ran.text.strip()) == (None, 0, "True")
    assert run.survivors() == []
    size = (run.workspace / "late.txt").stat().st_size
    assert run("print(open('late.txt').read().count('x'))").text.strip() == str(size)


def test_the_exit_code_is_the_scripts_own(run: Runner) -> None:
    assert run("raise SystemExit(7)").exit_code == 7
    assert run("import os; os.kill(os.getpid(), 9)").exit_code == 128 + 9
    assert run("import os; os.abort()").exit_code == 128 + 6
    assert run("import ctypes; ctypes.string_at(0)").exit_code == 128 + 11
    assert not list(run.workspace.glob("core*"))


@pytest.mark.parametrize("isolation", ["bwrap", "none"])
def test_a_harness_killed_in_the_middle_takes_its_sandbox_along(isolation: str, run: Runner) -> None:
    code = (
        "import os\nif os.fork() == 0: os.setsid(); os.fork()\nprint('begun', flush=True)\nwhile True: pass\n"
    )
    harness = start_harness(run, isolation, code)
    assert harness.stdout is not None
    assert b"begun" in harness.stdout.readline()
    assert len(marked(run.marker)) >= 2
    harness.kill()
    harness.wait()
    harness.stdout.close()
    if isolation == "bwrap":
        wait_until_gone(run.survivors)
    # The next harness removes the groups of the dead one, and what still runs in them.
    sweeper = start_harness(run, "bwrap", "print('swept')")
    sweeper.communicate(timeout=30)
    wait_until_gone(run.survivors)
    assert groups_of(harness.pid) == []


def test_a_harness_killed_at_any_moment_of_the_start_leaves_nothing(run: Runner) -> None:
    code = "import time\nopen('ran', 'w')\ntime.sleep(1000)"
    for milliseconds in (0, 4, 8, 12, 18, 25):
        harness = start_harness(run, "bwrap", code, announce=True)
        assert harness.stdout is not None
        assert harness.stdout.readline() == b"starting\n"
        select.select([], [], [], milliseconds / 1000)
        harness.kill()
        harness.communicate()
    wait_until_gone(run.survivors)
    wait_until_gone(lambda: [pid for pid in filter(str.isdigit, names("/proc")) if _is_orphan(pid)])
    start_harness(run, "bwrap", "print('swept')").communicate(timeout=30)


def test_the_groups_of_a_harness_that_is_dead_and_not_buried_are_removed(run: Runner) -> None:
    if not find_controller_folders():
        pytest.skip("no control groups here")
    harness = start_harness(run, "bwrap", "print('begun', flush=True)\nwhile True: pass")
    assert harness.stdout is not None and b"begun" in harness.stdout.readline()
    assert groups_of(harness.pid)
    harness.kill()
    os.waitid(os.P_PID, harness.pid, os.WEXITED | os.WNOWAIT)  # as one whom nobody waits for
    start_harness(run, "bwrap", "print('swept')").communicate(timeout=30)
    left = groups_of(harness.pid)
    harness.communicate()
    assert left == []


def _is_orphan(pid: str) -> bool:
    """Whether it is a part of a sandbox that nobody waits for."""
    try:
        state, parent = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[:2]
        name = Path("/proc", pid, "comm").read_text().strip()
        return parent == "1" and state not in "ZX" and name in ("bwrap", "setpriv", "prlimit")
    except OSError:
        return False


def start_harness(
    run: Runner, isolation: str, code: str, announce: bool = False
) -> "subprocess.Popen[bytes]":
    (run.workspace / "script.py").write_text(code)
    command = [sys.executable, str(HARNESS), isolation, str(run.workspace), run.marker, "60"]
    environment = {**os.environ, "ANNOUNCE": "1"} if announce else None
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)


def wait_until_gone(find: Callable[[], list[str]]) -> None:
    """The kernel tells of each one's end; there is nothing to guess."""
    deadline = time.monotonic() + 20
    while left := find():  # one that was just dying may have had a child
        with suppress(ProcessLookupError), os.fdopen(os.pidfd_open(int(left[0]))) as end:
            assert select.select([end], [], [], deadline - time.monotonic())[0], f"process {left[0]} goes on"


def test_killing_everything_from_inside_kills_only_what_is_inside(run: Runner) -> None:
    ran = run(f"""
import os, signal
for pid in (1, {os.getpid()}, {os.getppid()}):
    try: os.kill(pid, signal.SIGKILL)
    except OSError as error: print(error.__class__.__name__)
try: os.kill(-1, signal.SIGTERM)
except OSError as error: print(error.__class__.__name__)
print('still here')
""")
    assert ran.exit_code == 0
    assert "still here" in ran.text
