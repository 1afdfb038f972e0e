"""Memory, processes, disk and output end at their limits, and the machine does not notice."""

import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SMALL, Runner

from mlagentbench.records import Limits
from mlagentbench.sandbox.cgroups import find_controller_folders
from mlagentbench.sandbox.output import MAX_OUTPUT_FILE_BYTES

HARNESS = Path(__file__).parent / "harness.py"
root = pytest.mark.skipif(os.geteuid() != 0, reason="hides the control groups by a mount of its own")

EATERS = {
    "one process": "print('begun')\nkept = []\nwhile True: kept.append(bytearray(b'x' * (1 << 24)))\n",
    "many children": """
print('begun', flush=True)
import os, time
for _ in range(4): os.fork()
kept = bytearray(b'x' * (50 << 20))
time.sleep(60)
""",
    "files without a name": """
print('begun', flush=True)
import os
while True:
    fd = os.memfd_create('x')
    for _ in range(16): os.write(fd, bytes(b'x' * (1 << 20)))
""",
    "files in memory": """
print('begun', flush=True)
import time
for place in ('/tmp', '/dev/shm', '/home/agent'):
    try:
        with open(f'{place}/x', 'wb') as file:
            while True: file.write(b'x' * (1 << 20))
    except OSError as error: print(error, flush=True)
kept = bytearray(b'x' * (450 << 20))
time.sleep(60)
""",
}


@pytest.mark.parametrize("how", EATERS)
def test_memory_ends_at_its_limit_when_eaten_by(how: str, run: Runner) -> None:
    ran = run(EATERS[how])
    assert ran.limit == "memory"
    assert "begun" in ran.text
    assert ran.execution.seconds < 15


def test_file_systems_in_memory_are_small_and_the_script_hears_of_it(run: Runner) -> None:
    ran = run(
        """
for place in ('/tmp', '/dev/shm', '/home/agent'):
    with open(f'{place}/x', 'wb') as file:
        try:
            while True: file.write(b'x' * (1 << 20))
        except OSError as error: print(error.strerror)
    import os; os.unlink(f'{place}/x')
""",
        limits=SMALL.replace(disk_gb=1.0),
    )
    assert ran.text.splitlines() == ["No space left on device"] * 3
    assert (ran.limit, ran.exit_code) == (None, 0)


def test_a_fork_bomb_is_over_in_seconds(run: Runner) -> None:
    ran = run("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n")
    assert ran.limit == "processes"
    assert ran.execution.seconds < 10


def test_a_script_may_handle_the_limit_of_processes_itself(run: Runner) -> None:
    ran = run("""
import os, time
children = 0
try:
    while True:
        if os.fork() == 0: time.sleep(60)
        children += 1
except OSError as error: print(children, error.strerror)
""")
    assert (ran.limit, ran.exit_code) == ("processes", 0)
    assert ran.text.split()[0] == "61"  # and the three that the sandbox itself needs


QUEUES = """
import re, socket
kept = []
for _ in range(400):
    receiver = socket.socket(type=socket.SOCK_DGRAM); receiver.bind(('127.0.0.1', 0))
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.connect(receiver.getsockname())
        try:
            for _ in range(100): sender.send(bytes(60_000))
        except OSError: pass
    kept.append(receiver)
print(4096 * int(re.search(r'UDP: inuse \\d+ mem (\\d+)', open('/proc/net/sockstat').read())[1]))
"""


@pytest.mark.skipif(not find_controller_folders(), reason="needs control groups")
def test_what_waits_in_sockets_is_bounded_too(run: Runner) -> None:
    ran = run(QUEUES)
    assert ran.limit == "memory" or int(ran.text) < SMALL.memory_gb * 2**30 / 2, ran.text


FILLERS = {
    "many files of some size": """
for number in range(1500): open(f'f{number}', 'wb').write(b'x' * 100_000)
""",
    "many empty files": "for number in range(10**6): open(f'f{number}', 'w')",
    "many sparse files": """
for number in range(10): open(f'f{number}', 'wb').truncate(40 << 20)
""",
    "folders within folders": """
import os
for _ in range(3000): os.mkdir('d'); os.chdir('d')
""",
    "a file in a locked folder": """
import os
os.mkdir('locked'); os.mkdir('locked/in')
for number in range(10): open(f'locked/in/{number}', 'wb').truncate(40 << 20)
os.chmod('locked/in', 0); os.chmod('locked', 0); os.chmod('.', 0)
""",
    "files without a name": """
import os, time
for _ in range(10):
    fd = os.open('.', os.O_TMPFILE | os.O_RDWR); os.posix_fallocate(fd, 0, 40 << 20)
""",
    "files that are only mapped": """
import ctypes, os
libc = ctypes.CDLL(None)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for _ in range(10):
    fd = os.open('.', os.O_TMPFILE | os.O_RDWR); os.posix_fallocate(fd, 0, 40 << 20)
    libc.mmap(None, 4096, 1, 1, fd, 0); os.close(fd)
""",
}


@pytest.mark.parametrize("how", FILLERS)
def test_the_disk_ends_at_its_limit_when_filled_with(how: str, run: Runner) -> None:
    ran = run(f"print('begun', flush=True)\n{FILLERS[how]}\nimport time\ntime.sleep(60)")
    assert ran.limit == "disk"
    assert "begun" in ran.text
    assert ran.execution.seconds < 15
    subprocess.run(["chmod", "-R", "u+rwx", str(run.workspace)], check=True)
    subprocess.run(["rm", "-rf", str(run.workspace / "d")], check=True)  # deeper than Python can go


def test_a_disk_that_loses_more_than_the_workspace_may_take_is_looked_at_at_once(
    run: Runner, until: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    large = run.workspace / "f"
    large.touch()
    # As if nobody else wrote to this disk, or removed what hides the loss.
    monkeypatch.setattr(
        "mlagentbench.sandbox.limit_monitor._free_disk_bytes", lambda folder: 2**40 - large.stat().st_blocks * 512
    )
    process = run.sandbox.start(["sleep", "60"], run.box)
    try:
        monitor = process.monitor
        assert not monitor._is_disk_exceeded()
        monitor._next_scan = math.inf  # as long as it takes after the scan of very many files
        with large.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, int(2 * SMALL.disk_gb * 2**30))
        until(lambda: monitor.check_limits() == "disk")
    finally:
        process.close()


def test_one_big_file_ends_at_the_limit_with_an_error_of_its_own(run: Runner) -> None:
    ran = run("""
with open('f', 'wb', buffering=0) as file:
    while True: file.write(b'x' * (1 << 20))
""")
    assert (ran.limit, ran.exit_code) == ("disk", 1)
    assert "File too large" in ran.text
    assert (run.workspace / "f").stat().st_size == int(SMALL.disk_gb * 2**30)


def test_a_file_that_only_claims_to_be_huge_is_refused(run: Runner) -> None:
    ran = run("open('f', 'wb').truncate(10 << 30)")
    assert ran.exit_code == 1
    assert "File too large" in ran.text
    assert (run.workspace / "f").stat().st_size == 0


def test_a_flood_of_output_stays_on_disk_up_to_a_cap(run: Runner) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ran = run(
        "import os\nchunk = b'x' * 999_999 + b'\\n'\nfor _ in range(500): os.write(1, chunk)\nos.write(1, b'last')"
    )
    assert ran.execution.output_bytes > 400_000_000
    assert len(ran.text) < 20_000
    assert ran.text.endswith("last")
    assert (run.folder / "output.txt").stat().st_size == MAX_OUTPUT_FILE_BYTES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def test_output_without_an_end_is_ended_by_the_clock(run: Runner) -> None:
    ran = run("import os\nwhile True: os.write(1, os.urandom(1 << 16))", seconds=0.6)
    assert ran.limit == "time"
    assert len(ran.text) < 20_000


TAKES = """
import os, resource
for name in ('CORE', 'FSIZE', 'NOFILE', 'MEMLOCK', 'MSGQUEUE', 'RTPRIO', 'NICE'):
    limit = getattr(resource, f'RLIMIT_{name}', {'NICE': 13}.get(name))
    soft, hard = resource.getrlimit(limit)
    assert soft == hard, name
    try: resource.setrlimit(limit, (hard + 1, hard + 1)); print('raised', name)
    except (ValueError, PermissionError): pass
    print(name, hard)
for attempt in (lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), lambda: os.nice(-5),
                lambda: open('/proc/self/oom_score_adj', 'w').write('-1000'),
                lambda: os.setpriority(os.PRIO_PROCESS, 0, -5)):
    try: print('did', attempt())
    except OSError: pass
print('oom', open('/proc/self/oom_score_adj').read())
"""


def taken(run: Runner) -> tuple[list[str], dict[str, int]]:
    """What a script did that it should not, and its limits by name."""
    ran = run(TAKES)
    lines = [line for line in ran.text.splitlines() if line.strip()]
    assert ran.exit_code == 0, ran.text
    done = [line for line in lines if line.startswith(("did", "raised"))]
    return done, {name: int(value) for name, value in (line.split() for line in lines if line not in done)}


def test_what_a_script_may_take_from_the_machine_is_bounded(run: Runner) -> None:
    done, numbers = taken(run)
    assert done == []
    assert numbers["CORE"] <= 1 and numbers["NOFILE"] <= 4096
    assert numbers["RTPRIO"] == numbers["NICE"] == 0
    assert numbers["oom"] >= 500


def elsewhere(
    run: Runner, mounts: str, limits: Limits, seconds: float
) -> "subprocess.CompletedProcess[bytes]":
    """The script in a harness of its own, which sees other mounts than we do."""
    command = [sys.executable, str(HARNESS), "bwrap", str(run.workspace), run.marker, str(seconds)]
    shell = ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
    return subprocess.run(
        [*shell, *command, limits.model_dump_json()], capture_output=True, timeout=60, check=False
    )


def hidden(run: Runner, code: str, limits: Limits = SMALL, seconds: float = 20) -> dict[str, object]:
    """The same in a harness that finds no control groups."""
    (run.workspace / "script.py").write_text(code)
    done = elsewhere(run, "mount -t tmpfs none /sys/fs/cgroup", limits, seconds)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert found["groups"] == 0
    return {**found, "text": done.stdout.decode("utf-8", "replace")}


@root
@pytest.mark.parametrize("how", EATERS)
def test_without_control_groups_memory_ends_at_its_limit_when_eaten_by(how: str, run: Runner) -> None:
    started = time.monotonic()
    found = hidden(run, EATERS[how])
    assert found["limit"] == "memory"
    assert "begun" in str(found["text"])
    assert time.monotonic() - started < 15


@root
def test_without_control_groups_processes_are_bounded_all_the_same(run: Runner) -> None:
    found = hidden(
        run,
        "import os, time\nn = 0\ntry:\n while True:\n  if not os.fork(): time.sleep(60)\n  n += 1\n"
        "except OSError: print('made', n)",
    )
    assert 50 < int(str(found["text"]).split()[1]) <= 64
    bomb = hidden(run, "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n", seconds=1.5)
    assert bomb["limit"] == "time"
    assert run.survivors() == []


@root
def test_no_script_uses_up_the_disk_of_the_machine(run: Runner) -> None:
    (run.folder / "script.py").write_text("""
import os
for n in range(9): os.posix_fallocate(os.open(f'f{n}', os.O_RDWR | os.O_CREAT), 0, 100 << 20)
while True: pass
""")
    owner, limits = run.workspace.stat().st_uid, SMALL.replace(memory_gb=4.0, disk_gb=8.0)

    def with_a_disk_of(size: str) -> "subprocess.CompletedProcess[bytes]":
        mount = f"mount -t tmpfs -o size={size},uid={owner},gid={owner} none {run.workspace}"
        return elsewhere(run, f"{mount} && cp {run.folder}/script.py {run.workspace}", limits, 20)

    assert json.loads(with_a_disk_of("1300m").stdout)["limit"] == "disk"
    refused = with_a_disk_of("900m")
    assert refused.returncode == 1
    assert (
        b"SandboxFault: Less than 1 GB is free" in refused.stderr
    )  # before anything ran: not the agent's fault
