"""The access log: what a script tries to open is recorded, and the sandbox is no weaker for it."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from script_runner import SMALL, ScriptRunner, list_names

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import Fault, SandboxFault, UsageError
from mlagentbench.records import AgentSpec, Call, Limits, RunSpec
from mlagentbench.runner.batch.orchestrator import run_batch
from mlagentbench.runner.batch.plan import AgentPlan, Plan
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.sandbox.access_log.counts import MAX_PATHS, MAX_TOTAL_PATH_CHARS, AccessCounts
from mlagentbench.sandbox.access_log.expected_paths import OVERFLOW_NAME
from mlagentbench.sandbox.access_log.recording import AccessLog, CommandRecorder
from mlagentbench.sandbox.access_log.records import Access, access_file, read_access, unexpected_accesses
from mlagentbench.sandbox.processes import is_alive, list_process_tree

Accesses = dict[tuple[str, str], Access]
RecordAccesses = Callable[..., Accesses]


@pytest.fixture
def record_accesses(run: ScriptRunner) -> RecordAccesses:
    """Runs a script with an access log, and returns the accesses by path and mode."""

    def record(code: str, **options: object) -> Accesses:
        access_log = AccessLog(run.folder)
        try:
            result = run(code, access_log=access_log, **options)  # type: ignore[arg-type]
            access_log.write_step(1)
        finally:
            access_log.close()
        assert "Traceback" not in result.text, result.text
        return {(access.path, access.mode): access for access in read_access(run.folder, 1)}

    return record


ATTEMPT = """
import os, socket
def attempt(action):
    try:
        action()
    except OSError as error:
        print(error)
"""


def test_reads_and_writes_are_counted_separately(record_accesses: RecordAccesses) -> None:
    accesses = record_accesses("""
open("out.csv", "w").write("1")
for _ in range(3): open("./out.csv").read()
open("/tmp/../workspace/out.csv", "r+")
""")
    assert accesses["/workspace/out.csv", "write"].count == 2
    assert accesses["/workspace/out.csv", "read"].count == 3
    assert not accesses["/workspace/out.csv", "read"].refused
    assert accesses["/workspace/script.py", "read"].count >= 1


def test_accesses_before_the_script_starts_are_not_recorded(record_accesses: RecordAccesses) -> None:
    executed = [path for path, mode in record_accesses("pass") if mode == "execute"]
    assert len(executed) == 1
    assert "python" in executed[0]


def test_failed_attempts_are_recorded_as_refused(record_accesses: RecordAccesses) -> None:
    accesses = record_accesses(
        ATTEMPT
        + """
attempt(lambda: open("/etc/shadow"))
attempt(lambda: open("/nowhere/at/all"))
attempt(lambda: open("/usr/new", "w"))
attempt(lambda: open("/etc/passwd", "a"))
open("locked", "w"); os.chmod("locked", 0)
attempt(lambda: open("locked"))
attempt(lambda: open("later"))
open("later", "w"); open("later")
"""
    )
    refused = {
        key: (access.refused, access.count) for key, access in accesses.items() if key[0][:5] != "/root"
    }
    assert refused["/etc/shadow", "read"] == (1, 1)
    assert refused["/nowhere/at/all", "read"] == (1, 1)
    assert refused["/usr/new", "write"] == (1, 1)
    assert refused["/etc/passwd", "write"] == (1, 1)
    assert refused["/workspace/locked", "read"] == (1, 1)
    assert refused["/workspace/later", "read"] == (1, 2)
    assert refused["/workspace/later", "write"] == (0, 1)


def test_a_file_is_recorded_by_its_real_path_however_it_is_reached(record_accesses: RecordAccesses) -> None:
    accesses = record_accesses("""
import os
os.symlink("/etc/group", "innocent"); open("innocent"); os.unlink("innocent")
os.symlink("/etc/hosts", "innocent"); open("innocent")
open("/proc/self/root/etc/passwd"); open(f"/proc/{os.getpid()}/cwd/script.py")
os.chdir("/tmp"); open("here", "w"); os.mkdir("deep"); folder = os.open("deep", os.O_RDONLY)
os.open("below", os.O_CREAT | os.O_WRONLY, dir_fd=folder)
open("/proc/self/status"); open("/dev/fd/%d" % os.open("/workspace/script.py", os.O_RDONLY))
""")
    expected = {
        ("/etc/group", "read"),
        ("/etc/hosts", "read"),
        ("/etc/passwd", "read"),
        ("/tmp/here", "write"),
    }
    expected |= {("/tmp/deep/below", "write"), ("/proc/self/status", "read")}
    assert expected <= set(accesses)
    assert accesses["/workspace/script.py", "read"].count >= 4


def test_a_link_through_proc_does_not_hide_the_target(record_accesses: RecordAccesses) -> None:
    accesses = record_accesses("""
import os
os.symlink("/proc/self/root/etc", "data"); open("data/passwd")
os.mkdir("deep"); os.symlink("../../proc/self/cwd/../etc/group", "deep/data"); open("deep/data")
os.symlink(f"/proc/{os.getpid()}/root", "all"); open("all/usr/../etc/hosts")
""")
    assert not any(accesses[path, "read"].refused for path in ("/etc/passwd", "/etc/group", "/etc/hosts"))


def test_a_link_that_changes_right_after_the_call_is_recorded_as_it_was(
    record_accesses: RecordAccesses,
) -> None:
    accesses = record_accesses("""
import os
for number in range(200):
    os.symlink("/etc/passwd", "innocent"); fd = os.open("innocent", os.O_RDONLY); os.unlink("innocent")
    os.symlink("script.py", "innocent"); os.unlink("innocent"); os.close(fd)
""")
    assert accesses["/etc/passwd", "read"].count == 200


def test_sockets_are_recorded_with_their_addresses(record_accesses: RecordAccesses) -> None:
    accesses = record_accesses(
        ATTEMPT
        + """
server = socket.socket(); server.bind(("127.0.0.1", 4321)); server.listen()
client = socket.create_connection(("127.0.0.1", 4321)); client.send(b"x"); client.sendmsg([b"x"])
attempt(lambda: socket.socket().connect(("192.0.2.1", 80)))
attempt(lambda: socket.socket(socket.AF_INET6).connect(("2001:db8::1", 443)))
attempt(lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.2", 53)))
attempt(lambda: socket.socket(type=socket.SOCK_DGRAM).sendmsg([b"x"], [], 0, ("192.0.2.3", 53)))
os.chdir("/tmp"); socket.socket(socket.AF_UNIX).bind("server")
socket.socket(socket.AF_UNIX).bind("\\0hidden")
attempt(lambda: socket.socket(socket.AF_UNIX).connect("/run/docker.sock"))
"""
    )
    refused = {
        key: access.refused for key, access in accesses.items() if key[1] in ("connect", "bind", "send")
    }
    assert refused == {
        ("inet:127.0.0.1:4321", "bind"): 0,
        ("inet:127.0.0.1:4321", "connect"): 0,
        ("inet:192.0.2.1:80", "connect"): 1,
        ("inet:[2001:db8::1]:443", "connect"): 1,
        ("inet:192.0.2.2:53", "send"): 1,
        ("inet:192.0.2.3:53", "send"): 1,
        ("unix:/tmp/server", "bind"): 0,
        ("unix:@hidden", "bind"): 0,
        ("unix:/run/docker.sock", "connect"): 1,
    }
    assert {
        access.path
        for access in unexpected_accesses(accesses.values())
        if access.mode in ("connect", "bind", "send")
    } == {
        "inet:192.0.2.1:80",
        "inet:[2001:db8::1]:443",
        "inet:192.0.2.2:53",
        "inet:192.0.2.3:53",
        "unix:/run/docker.sock",
    }


def test_children_daemons_and_threads_are_recorded(record_accesses: RecordAccesses) -> None:
    accesses = record_accesses("""
import os, subprocess, threading
subprocess.run(["sh", "-c", "echo x >by-a-shell"], check=True)
thread = threading.Thread(target=lambda: open("by-a-thread", "w")); thread.start(); thread.join()
reader, writer = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        open("by-a-daemon", "w"); os.write(writer, b"x")
    os._exit(0)
os.read(reader, 1)
""")
    assert {("/workspace/by-a-shell", "write"), ("/workspace/by-a-thread", "write")} <= set(accesses)
    assert ("/workspace/by-a-daemon", "write") in accesses


def test_recording_gives_the_script_nothing_and_does_not_weaken_the_sandbox(
    run: ScriptRunner, probe_script: str
) -> None:
    access_log = AccessLog(run.folder)
    recorded_text = run(probe_script, access_log=access_log).text
    access_log.write_step(1)
    access_log.close()
    plain_text = run(probe_script).text
    recorded, expected = json.loads(recorded_text), json.loads(plain_text)
    assert recorded.pop("second listener") == "EBUSY"  # there can be only one, which is ours
    assert recorded.pop("filters") == expected.pop("filters") + 1
    expected.pop("second listener")
    assert recorded == expected
    assert recorded["descriptors"] == ["0", "1", "2"]
    assert {recorded[name] for name in ("vsock", "unshare", "io_uring", "ptrace")} == {
        "EAFNOSUPPORT",
        "EPERM",
        "ENOSYS",
    }


@pytest.fixture
def probe_script() -> str:
    """A script that prints what it has and what it may do."""
    return """
import ctypes, errno, json, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(*numbers):
    known = numbers[0 if platform.machine() == "x86_64" else 1]
    arguments = [ctypes.c_long(number) for number in (known, *numbers[2:])]
    return "done" if libc.syscall(*arguments) >= 0 else errno.errorcode[ctypes.get_errno()]
def vsock():
    try:
        socket.socket(socket.AF_VSOCK)
    except OSError as error:
        return errno.errorcode[error.errno]
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))
allow = Program(1, b"\\x06\\x00\\x00\\x00\\x00\\x00\\xff\\x7f")
fds = []
for name in os.listdir("/proc/self/fd"):
    try:
        os.readlink(f"/proc/self/fd/{name}")
        fds.append(name)
    except OSError:
        pass  # the descriptor of the listing itself
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "descriptors": sorted(fds),
    "vsock": vsock(),
    "unshare": call(272, 97, 0x10000000),
    "io_uring": call(425, 425, 1, 0),
    "ptrace": call(101, 117, 0),
    "second listener": call(317, 277, 1, 8, ctypes.addressof(allow)),
    "filters": int(status["Seccomp_filters"]),
    "privileges": [status[name].strip() for name in ("CapEff", "NoNewPrivs", "Seccomp", "Uid")],
    "opt": sorted(set(os.listdir("/opt")) - {"access_log.py"}),
    "environment": {name: value for name, value in os.environ.items() if name != "MARKER"},
    "processes": sorted(filter(str.isdigit, os.listdir("/proc"))) == ["1", str(os.getpid())],
}))
"""


def test_the_accesses_of_a_killed_script_are_recorded(record_accesses: RecordAccesses) -> None:
    accesses = record_accesses("open('before', 'w')\nwhile True: open('/etc/passwd').close()", timeout_s=1.5)
    assert ("/workspace/before", "write") in accesses
    assert accesses["/etc/passwd", "read"].count > 10


def test_a_flood_of_paths_is_bounded_and_hides_no_unexpected_access(
    record_accesses: RecordAccesses, run: ScriptRunner
) -> None:
    accesses = record_accesses(
        ATTEMPT
        + f"""
for number in range({MAX_PATHS} + 500): attempt(lambda: os.close(os.open(f"{{number}}", os.O_RDONLY)))
attempt(lambda: open("/etc/shadow"))
""".replace("print(error)", "pass")
    )
    assert accesses[f"/workspace/{OVERFLOW_NAME}", "read"].count >= 500
    assert ("/etc/shadow", "read") in accesses
    assert len(accesses) < MAX_PATHS + 1000


def test_long_paths_do_not_exceed_the_capacity_of_the_log() -> None:
    counts = AccessCounts()
    for number in range(2000):
        counts.add(f"/secret/{'x' * 4000}/{number}", "read", False)
        counts.add(f"inet:192.0.2.1:{number}", "connect", True)
    assert sum(len(str(row[0])) for row in counts.rows()) <= MAX_TOTAL_PATH_CHARS + 100
    assert next(row[2] for row in counts.rows() if row[0] == f"/{OVERFLOW_NAME}") > 1000


def test_file_names_that_are_not_utf8_are_escaped(record_accesses: RecordAccesses) -> None:
    accesses = record_accesses("open(b'\\xff\\n\\x1b[2J.txt', 'w')")
    assert ("/workspace/\\xff\n\x1b[2J.txt", "write") in accesses


def test_a_process_whose_name_is_not_utf8_is_recorded(record_accesses: RecordAccesses) -> None:
    rename = "import ctypes, os; ctypes.CDLL(None).prctl(15, bytes([255, 254]))\n"
    assert ("/proc/self/status", "read") in record_accesses(rename + 'open(f"/proc/{os.getpid()}/status")')


def test_an_honest_script_makes_no_unexpected_access(
    record_accesses: RecordAccesses, run: ScriptRunner
) -> None:
    code = """
import multiprocessing, subprocess, tempfile
import numpy, pandas, sklearn.ensemble, joblib
pandas.DataFrame({"a": [1, 2]}).to_csv("submission.csv")
model = sklearn.ensemble.RandomForestRegressor(4, n_jobs=2).fit(numpy.ones((9, 2)), numpy.ones(9))
joblib.dump(model, "model.joblib")
tempfile.NamedTemporaryFile()
if __name__ == "__main__":
    multiprocessing.Pool(1).map(abs, [1])
    subprocess.run(["ls", "-l"], capture_output=True, check=True)
"""
    assert unexpected_accesses(record_accesses(code, limits=SMALL.replace(memory_gb=2)).values()) == ()


def test_paths_and_addresses_outside_the_expected_ones_are_unexpected() -> None:
    def access(path: str, mode: str = "read", refused: int = 0) -> Access:
        return Access.model_validate({"path": path, "mode": mode, "count": 1, "refused": refused})

    expected = [
        access("/workspace"),
        access("/workspace/a"),
        access("/usr/lib/x"),
        access("/tmp/x"),
        access("netlink"),
    ]
    expected += [access("/build/lib/libm.so.6", refused=1), access("inet:127.0.0.1:1", "connect")]
    unexpected = [
        access("/workspaces/a"),
        access("/proc/1/environ"),
        access("/"),
        access("/root/.ssh/id", refused=1),
    ]
    unexpected += [
        access("/build/lib/libm.so.6"),
        access("inet:1.2.3.4:1", "connect"),
        access(f"/{OVERFLOW_NAME}"),
    ]
    assert unexpected_accesses([*expected, *unexpected]) == tuple(unexpected)


def test_a_supervisor_that_dies_is_a_fault(run: ScriptRunner) -> None:
    access_log = AccessLog(run.folder)
    with access_log.record_command(run.spec.uid) as recorder:
        os.kill(recorder.pid, signal.SIGKILL)
    with pytest.raises(Fault, match="access log stopped recording"):
        access_log.write_step(1)
    access_log.close()


class WrongUserLog(AccessLog):
    """Records with a uid that is not that of the command."""

    def record_command(self, uid: int | None) -> AbstractContextManager[CommandRecorder]:
        return super().record_command((uid or 0) + 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_unreadable_process_memory_is_a_fault_with_a_reason(run: ScriptRunner) -> None:
    with pytest.raises(SandboxFault, match="The access log cannot record: PermissionError: "):
        run("pass", access_log=WrongUserLog(run.folder))


def test_a_supervisor_exits_when_its_harness_is_killed(run: ScriptRunner, until: Callable[..., None]) -> None:
    (run.workspace / "script.py").write_text("print('started', flush=True)\nwhile True: pass")
    command = [
        sys.executable,
        str(Path(__file__).parent / "harness.py"),
        "bwrap",
        str(run.workspace),
        run.marker,
        "60",
    ]
    harness = subprocess.Popen(command, env={**os.environ, "RECORD_ACCESS": "yes"}, stdout=subprocess.PIPE)
    assert harness.stdout is not None
    with harness, harness.stdout:
        assert harness.stdout.readline() == b"started\n"
        supervisors = [
            pid
            for pid in list_process_tree(harness.pid)
            if b"supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        harness.kill()
    assert len(supervisors) == 1
    until(lambda: not is_alive(supervisors[0]) and not run.survivors())


def test_recording_without_a_sandbox_is_a_usage_error(toy: Path) -> None:
    with pytest.raises(UsageError, match="--record-access needs the bubblewrap sandbox"):
        prepare_setup(str(toy), "open", "none", lambda line: None, record_access=True)


@pytest.fixture
def recorded_env(setup: Setup, open_env: Callable[..., Environment]) -> Callable[[], Environment]:
    """Opens a run of the toy task with an access log; calling it again resumes the run."""
    return lambda: open_env(setup=replace(setup, record_access=True))


def run_code(env: Environment, code: str) -> str:
    return env.step(Call(action="Python REPL", args={"command": code}))


def recorded_paths(run_folder: Path, step: int) -> set[str]:
    return {access.path for access in read_access(run_folder, step)}


def test_accesses_of_an_interpreter_belong_to_their_step_also_after_a_resume(
    recorded_env: Callable[[], Environment], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    env = recorded_env()
    run_code(env, "open('first', 'w'); x = 3")
    env.step(Call(action="List Files", args={"dir_path": "."}))
    run_code(env, "open('second', 'w')")
    env.close()
    assert "/workspace/first" in recorded_paths(run, 1)
    assert not access_file(run, 2).exists()
    assert "/workspace/second" in recorded_paths(run, 3)
    assert "/workspace/first" not in recorded_paths(run, 3)

    RunFolder(run).rewind(2)
    assert not access_file(run, 3).exists()
    env = recorded_env()
    run_code(env, "open('first', 'w'); x = 3")
    env.step(Call(action="List Files", args={"dir_path": "."}))
    assert run_code(env, "open('third', 'w'); x") == "3"
    env.close()
    assert "/workspace/third" in recorded_paths(run, 3)
    assert "/workspace/first" not in recorded_paths(run, 3)


def test_a_script_and_an_interpreter_are_recorded_in_one_run(
    recorded_env: Callable[[], Environment], tmp_path: Path
) -> None:
    env = recorded_env()
    run_code(env, "1")
    env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
    env.close()
    assert "/workspace/train.py" in recorded_paths(tmp_path / "run", 2)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["record_access"] is True


def test_a_batch_can_record_accesses(tmp_path: Path, toy: Path) -> None:
    plan = Plan(tasks=(str(toy),), agents=(AgentPlan(name="baseline"),), record_access=True)
    run_batch(tmp_path / "batch", plan, [""], lambda line: None, lambda view: None)
    (folder,) = (path.parent for path in (tmp_path / "batch").glob("*/run.json"))
    assert "/workspace/train.py" in recorded_paths(folder, 1)
    with pytest.raises(UsageError, match="--record-access needs the bubblewrap sandbox"):
        plan.replace(sandbox="none").expand_jobs()


def test_accesses_are_recorded_only_on_request_and_older_runs_stay_readable(
    open_env: Callable[..., Environment], setup: Setup, tmp_path: Path
) -> None:
    env = open_env()
    env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
    assert not list(tmp_path.rglob("access"))
    spec = setup.create_run_spec(AgentSpec(agent="test"), 0, Limits()).model_dump()
    del spec["record_access"]
    assert RunSpec.model_validate(spec).record_access is False


def test_a_damaged_access_file_is_a_fault(tmp_path: Path) -> None:
    path = access_file(tmp_path, 7)
    path.parent.mkdir()
    path.write_text(secrets.token_hex(8))
    with pytest.raises(Fault, match="damaged"):
        read_access(tmp_path, 7)
    assert list_names(str(path.parent)) == ["step-0007.jsonl"]
