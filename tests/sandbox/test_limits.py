"""Limits on memory, processes, disk and output are enforced, and the machine is not affected."""

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
from script_runner import SMALL, ScriptRunner

from mlagentbench.records import Limits
from mlagentbench.sandbox.cgroups import find_controller_folders
from mlagentbench.sandbox.output import MAX_OUTPUT_FILE_BYTES

HARNESS = Path(__file__).parent / "harness.py"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="hides the cgroups with its own mount")

MEMORY_USERS = {
    "one process": "print('started')\nkept = []\nwhile True: kept.append(bytearray(b'x' * (1 << 24)))\n",
    "many children": """
print('started', flush=True)
import os, time
for _ in range(4): os.fork()
kept = bytearray(b'x' * (50 << 20))
time.sleep(60)
""",
    "files without a name": """
print('started', flush=True)
import os
while True:
    fd = os.memfd_create('x')
    for _ in range(16): os.write(fd, bytes(b'x' * (1 << 20)))
""",
    "files without a name that are only partly mapped": """
print('started', flush=True)
import ctypes, os
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
SIZE, SHARED_ANONYMOUS = 32 << 20, 0x21
for number in range(60):
    fd = os.memfd_create('x') if number % 2 else -1
    if fd >= 0: os.ftruncate(fd, SIZE)
    address = libc.mmap(None, SIZE, 3, 1 if fd >= 0 else SHARED_ANONYMOUS, fd, 0)
    ctypes.memset(address, 1, SIZE)
    libc.munmap(address + 4096, SIZE - 4096)
    if fd >= 0: os.close(fd)
while True: pass
""",
    "files in memory": """
print('started', flush=True)
import time
for folder in ('/tmp', '/dev/shm', '/home/agent'):
    try:
        with open(f'{folder}/x', 'wb') as file:
            while True: file.write(b'x' * (1 << 20))
    except OSError as error: print(error, flush=True)
kept = bytearray(b'x' * (450 << 20))
time.sleep(60)
""",
    "a process whose first thread has exited": """
print('started', flush=True)
import ctypes, threading, time
def use_memory():
    kept = []
    while True: kept.append(bytearray(b'x' * (1 << 24))); time.sleep(0.01)
threading.Thread(target=use_memory).start()
ctypes.CDLL(None).pthread_exit(None)
""",
    "page tables": """
print('started', flush=True)
import ctypes, mmap, time
SPACE, PAGE_TABLE_SPAN = 1 << 39, 2 << 20
memory = mmap.mmap(-1, SPACE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for position in range(0, SPACE, PAGE_TABLE_SPAN): memory[position]
time.sleep(60)
""",
    "data queued in sockets": """
print('started', flush=True)
import os, socket, time
for _ in range(4): os.fork()
kept = []
for _ in range(900):
    kept.append(socket.socketpair())
    kept[-1][0].setblocking(False)
    try:
        while True: kept[-1][0].send(bytes(60_000))
    except OSError: pass
time.sleep(60)
""",
    "files on their way through a socket": """
print('started', flush=True)
import os, socket, time
kept = socket.socketpair()
for _ in range(60):
    fd = os.memfd_create('x')
    for _ in range(16): os.write(fd, b'x' * (1 << 20))
    socket.send_fds(kept[0], [b'x'], [fd])
    os.close(fd)
time.sleep(60)
""",
}


@pytest.mark.parametrize("method", MEMORY_USERS)
def test_a_script_is_killed_at_the_memory_limit_when_memory_is_used_by(
    method: str, run: ScriptRunner
) -> None:
    result = run(MEMORY_USERS[method])
    assert result.limit == "memory"
    assert "started" in result.text
    assert result.execution.seconds < 15


def test_tmpfs_is_small_and_the_script_gets_an_error_when_it_is_full(run: ScriptRunner) -> None:
    result = run(
        """
for folder in ('/tmp', '/dev/shm', '/home/agent'):
    with open(f'{folder}/x', 'wb') as file:
        try:
            while True: file.write(b'x' * (1 << 20))
        except OSError as error: print(error.strerror)
    import os; os.unlink(f'{folder}/x')
""",
        limits=SMALL.replace(disk_gb=1.0),
    )
    assert result.text.splitlines() == ["No space left on device"] * 3
    assert (result.limit, result.exit_code) == (None, 0)


def test_a_fork_bomb_is_killed_within_seconds(run: ScriptRunner) -> None:
    result = run("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n")
    assert result.limit == "processes"
    assert result.execution.seconds < 10


def test_a_script_can_handle_the_process_limit_itself(run: ScriptRunner) -> None:
    result = run("""
import os, time
children = 0
try:
    while True:
        if os.fork() == 0: time.sleep(60)
        children += 1
except OSError as error: print(children, error.strerror)
""")
    assert result.exit_code == 0
    if find_controller_folders():
        assert result.limit == "processes"
        assert result.text.split()[0] == "61"  # and the three that the sandbox itself needs
    else:  # the limit monitor may look too late
        assert result.text.split()[0] == "63"  # and the two in the user namespace, of one more than allowed


FILL_SOCKETS = """
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


@pytest.mark.skipif(not find_controller_folders(), reason="needs cgroups")
def test_socket_buffers_are_limited(run: ScriptRunner) -> None:
    result = run(FILL_SOCKETS)
    assert result.limit == "memory" or int(result.text) < SMALL.memory_gb * 2**30 / 2, result.text


DISK_FILLERS = {
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
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
for _ in range(10):
    fd = os.open('.', os.O_TMPFILE | os.O_RDWR); os.posix_fallocate(fd, 0, 40 << 20)
    libc.mmap(None, 4096, 1, 1, fd, 0); os.close(fd)
""",
    "files of a process whose first thread has exited": """
import ctypes, os, threading, time
def fill():
    time.sleep(0.1)
    for _ in range(10):
        fd = os.open('.', os.O_TMPFILE | os.O_RDWR); os.posix_fallocate(fd, 0, 40 << 20)
    time.sleep(60)
threading.Thread(target=fill).start()
ctypes.CDLL(None).pthread_exit(None)
""",
    "files mapped by a process whose first thread has exited": """
import ctypes, mmap, os, threading, time
def fill():
    time.sleep(0.1)
    kept = []
    for _ in range(10):
        fd = os.open('.', os.O_TMPFILE | os.O_RDWR); os.posix_fallocate(fd, 0, 40 << 20)
        kept.append(mmap.mmap(fd, 40 << 20)); os.close(fd)
    time.sleep(60)
threading.Thread(target=fill).start()
ctypes.CDLL(None).pthread_exit(None)
""",
}


@pytest.mark.parametrize("method", DISK_FILLERS)
def test_a_script_is_killed_at_the_disk_limit_when_the_disk_is_filled_with(
    method: str, run: ScriptRunner
) -> None:
    result = run(f"print('started', flush=True)\n{DISK_FILLERS[method]}\nimport time\ntime.sleep(60)")
    assert result.limit == "disk"
    assert "started" in result.text
    assert result.execution.seconds < 15
    subprocess.run(["chmod", "-R", "u+rwx", str(run.workspace)], check=True)
    subprocess.run(["rm", "-rf", str(run.workspace / "d")], check=True)  # deeper than Python can go


def test_a_disk_that_loses_more_than_the_workspace_may_grow_is_scanned_at_once(
    run: ScriptRunner, until: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    large = run.workspace / "f"
    large.touch()
    # As if no other process used this disk.
    monkeypatch.setattr(
        "mlagentbench.sandbox.limit_monitor._free_disk_bytes",
        lambda folder: 2**40 - large.stat().st_blocks * 512,
    )
    process = run.sandbox.start(["sleep", "60"], run.spec)
    try:
        monitor = process.monitor
        assert not monitor._is_disk_exceeded()
        monitor._next_scan = math.inf  # as long as it takes after the scan of very many files
        with large.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, int(2 * SMALL.disk_gb * 2**30))
        until(lambda: monitor.check_limits() == "disk")
    finally:
        process.close()


def test_one_big_file_stops_at_the_limit_with_its_own_error(run: ScriptRunner) -> None:
    result = run("""
with open('f', 'wb', buffering=0) as file:
    while True: file.write(b'x' * (1 << 20))
""")
    assert (result.limit, result.exit_code) == ("disk", 1)
    assert "File too large" in result.text
    assert (run.workspace / "f").stat().st_size == int(SMALL.disk_gb * 2**30)


def test_a_huge_sparse_file_is_refused(run: ScriptRunner) -> None:
    result = run("open('f', 'wb').truncate(10 << 30)")
    assert result.exit_code == 1
    assert "File too large" in result.text
    assert (run.workspace / "f").stat().st_size == 0


def test_a_flood_of_output_is_stored_up_to_a_maximum(run: ScriptRunner) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = run(
        "import os\nchunk = b'x' * 999_999 + b'\\n'\nfor _ in range(500): os.write(1, chunk)\n"
        "os.write(1, b'last')"
    )
    assert result.execution.output_bytes > 400_000_000
    assert len(result.text) < 20_000
    assert result.text.endswith("last")
    assert (run.folder / "output.txt").stat().st_size == MAX_OUTPUT_FILE_BYTES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def test_endless_output_is_stopped_by_the_time_limit(run: ScriptRunner) -> None:
    result = run("import os\nwhile True: os.write(1, os.urandom(1 << 16))", timeout_s=0.6)
    assert result.limit == "time"
    assert len(result.text) < 20_000


RAISE_LIMITS = """
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


def try_to_raise_limits(run: ScriptRunner) -> tuple[list[str], dict[str, int]]:
    """What a script succeeded to do although it should not, and its limits by name."""
    result = run(RAISE_LIMITS)
    lines = [line for line in result.text.splitlines() if line.strip()]
    assert result.exit_code == 0, result.text
    done = [line for line in lines if line.startswith(("did", "raised"))]
    return done, {name: int(value) for name, value in (line.split() for line in lines if line not in done)}


def test_resource_limits_of_a_script_cannot_be_raised(run: ScriptRunner) -> None:
    done, numbers = try_to_raise_limits(run)
    assert done == []
    assert numbers["CORE"] <= 1 and numbers["NOFILE"] <= 4096
    assert numbers["RTPRIO"] == numbers["NICE"] == 0
    assert numbers["oom"] >= 500


def run_with_mounts(
    run: ScriptRunner, mounts: str, limits: Limits, timeout_s: float
) -> "subprocess.CompletedProcess[bytes]":
    """Run the script in a separate harness that has other mounts."""
    command = [sys.executable, str(HARNESS), "bwrap", str(run.workspace), run.marker, str(timeout_s)]
    shell = ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
    return subprocess.run(
        [*shell, *command, limits.model_dump_json()], capture_output=True, timeout=60, check=False
    )


def run_without_cgroups(
    run: ScriptRunner, code: str, limits: Limits = SMALL, timeout_s: float = 20
) -> dict[str, object]:
    """Run the script in a separate harness that finds no cgroups."""
    (run.workspace / "script.py").write_text(code)
    done = run_with_mounts(run, "mount -t tmpfs none /sys/fs/cgroup", limits, timeout_s)
    assert done.returncode == 0, done.stderr
    outcome: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert outcome["controllers"] == 0
    return {**outcome, "text": done.stdout.decode("utf-8", "replace")}


@needs_root
@pytest.mark.parametrize("method", MEMORY_USERS)
def test_without_cgroups_a_script_is_killed_at_the_memory_limit_when_memory_is_used_by(
    method: str, run: ScriptRunner
) -> None:
    started = time.monotonic()
    outcome = run_without_cgroups(run, MEMORY_USERS[method])
    assert outcome["limit"] == "memory"
    assert "started" in str(outcome["text"])
    assert time.monotonic() - started < 15


@needs_root
def test_without_cgroups_processes_are_still_limited(run: ScriptRunner) -> None:
    outcome = run_without_cgroups(
        run,
        "import os, time\nn = 0\ntry:\n while True:\n  if not os.fork(): time.sleep(60)\n  n += 1\n"
        "except OSError: print('made', n)",
    )
    assert 50 < int(str(outcome["text"]).split()[1]) <= 64
    bomb = run_without_cgroups(run, "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n")
    assert bomb["limit"] == "processes"
    assert run.survivors() == []


@needs_root
def test_without_cgroups_as_many_processes_as_allowed_are_not_a_fork_bomb(run: ScriptRunner) -> None:
    outcome = run_without_cgroups(
        run,
        "import os, time\nfor n in range(62):\n  if not os.fork(): time.sleep(60)\ntime.sleep(3)",
    )
    assert (outcome["limit"], outcome["exit_code"]) == (None, 0), outcome["text"]


@needs_root
def test_no_script_can_fill_the_disk_of_the_machine(run: ScriptRunner) -> None:
    (run.folder / "script.py").write_text("""
import os
for n in range(9): os.posix_fallocate(os.open(f'f{n}', os.O_RDWR | os.O_CREAT), 0, 100 << 20)
while True: pass
""")
    uid, limits = run.workspace.stat().st_uid, SMALL.replace(memory_gb=4.0, disk_gb=8.0)

    def run_with_disk(size: str) -> "subprocess.CompletedProcess[bytes]":
        mount = f"mount -t tmpfs -o size={size},uid={uid},gid={uid} none {run.workspace}"
        return run_with_mounts(run, f"{mount} && cp {run.folder}/script.py {run.workspace}", limits, 20)

    assert json.loads(run_with_disk("1300m").stdout)["limit"] == "disk"
    refused = run_with_disk("900m")
    assert refused.returncode == 1
    assert (
        b"SandboxFault: Less than 1 GB is free" in refused.stderr
    )  # before anything result: not the agent's fault
