"""The access ledger: what a script tries is written down, and the sandbox is no weaker for it."""

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
from conftest import SMALL, Runner, names

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

Tried = dict[tuple[str, str], Access]


@pytest.fixture
def tried(run: Runner) -> Callable[..., Tried]:
    """Run a script with a ledger, and read what stands in it."""

    def listen(code: str, **options: object) -> Tried:
        access_log = AccessLog(run.folder)
        try:
            ran = run(code, access_log=access_log, **options)  # type: ignore[arg-type]
            access_log.write_step(1)
        finally:
            access_log.close()
        assert "Traceback" not in ran.text, ran.text
        return {(access.path, access.mode): access for access in read_access(run.folder, 1)}

    return listen


ATTEMPT = """
import os, socket
def attempt(deed):
    try:
        deed()
    except OSError as error:
        print(error)
"""


def test_reading_and_writing_are_told_apart_and_counted(tried: Callable[..., Tried]) -> None:
    found = tried("""
open("out.csv", "w").write("1")
for _ in range(3): open("./out.csv").read()
open("/tmp/../workspace/out.csv", "r+")
""")
    assert found["/workspace/out.csv", "write"].count == 2
    assert found["/workspace/out.csv", "read"].count == 3
    assert not found["/workspace/out.csv", "read"].refused
    assert found["/workspace/script.py", "read"].count >= 1


def test_what_came_before_the_script_is_not_in_it(tried: Callable[..., Tried]) -> None:
    executed = [path for path, mode in tried("pass") if mode == "execute"]
    assert len(executed) == 1
    assert "python" in executed[0]


def test_tries_in_vain_are_told_as_such(tried: Callable[..., Tried]) -> None:
    found = tried(
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
    in_vain = {key: (access.refused, access.count) for key, access in found.items() if key[0][:5] != "/root"}
    assert in_vain["/etc/shadow", "read"] == (1, 1)
    assert in_vain["/nowhere/at/all", "read"] == (1, 1)
    assert in_vain["/usr/new", "write"] == (1, 1)
    assert in_vain["/etc/passwd", "write"] == (1, 1)
    assert in_vain["/workspace/locked", "read"] == (1, 1)
    assert in_vain["/workspace/later", "read"] == (1, 2)
    assert in_vain["/workspace/later", "write"] == (0, 1)


def test_a_file_is_known_by_its_own_name_however_it_is_reached(tried: Callable[..., Tried]) -> None:
    found = tried("""
import os
os.symlink("/etc/group", "innocent"); open("innocent"); os.unlink("innocent")
os.symlink("/etc/hosts", "innocent"); open("innocent")
open("/proc/self/root/etc/passwd"); open(f"/proc/{os.getpid()}/cwd/script.py")
os.chdir("/tmp"); open("here", "w"); os.mkdir("deep"); folder = os.open("deep", os.O_RDONLY)
os.open("below", os.O_CREAT | os.O_WRONLY, dir_fd=folder)
open("/proc/self/status"); open("/dev/fd/%d" % os.open("/workspace/script.py", os.O_RDONLY))
""")
    wanted = {("/etc/group", "read"), ("/etc/hosts", "read"), ("/etc/passwd", "read"), ("/tmp/here", "write")}
    wanted |= {("/tmp/deep/below", "write"), ("/proc/self/status", "read")}
    assert wanted <= set(found)
    assert found["/workspace/script.py", "read"].count >= 4


def test_a_link_through_proc_hides_nothing(tried: Callable[..., Tried]) -> None:
    found = tried("""
import os
os.symlink("/proc/self/root/etc", "data"); open("data/passwd")
os.mkdir("deep"); os.symlink("../../proc/self/cwd/../etc/group", "deep/data"); open("deep/data")
os.symlink(f"/proc/{os.getpid()}/root", "all"); open("all/usr/../etc/hosts")
""")
    assert not any(found[path, "read"].refused for path in ("/etc/passwd", "/etc/group", "/etc/hosts"))


def test_a_link_that_is_turned_at_once_is_told_as_it_was(tried: Callable[..., Tried]) -> None:
    found = tried("""
import os
for number in range(200):
    os.symlink("/etc/passwd", "innocent"); fd = os.open("innocent", os.O_RDONLY); os.unlink("innocent")
    os.symlink("script.py", "innocent"); os.unlink("innocent"); os.close(fd)
""")
    assert found["/etc/passwd", "read"].count == 200


def test_sockets_are_told_with_their_addresses(tried: Callable[..., Tried]) -> None:
    found = tried(
        ATTEMPT
        + """
server = socket.socket(); server.bind(("127.0.0.1", 4321)); server.listen()
client = socket.create_connection(("127.0.0.1", 4321)); client.send(b"x"); client.sendmsg([b"x"])
attempt(lambda: socket.socket().connect(("192.0.2.1", 80)))
attempt(lambda: socket.socket(socket.AF_INET6).connect(("2001:db8::1", 443)))
attempt(lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.2", 53)))
attempt(lambda: socket.socket(type=socket.SOCK_DGRAM).sendmsg([b"x"], [], 0, ("192.0.2.3", 53)))
os.chdir("/tmp"); socket.socket(socket.AF_UNIX).bind("ear")
socket.socket(socket.AF_UNIX).bind("\\0hidden")
attempt(lambda: socket.socket(socket.AF_UNIX).connect("/run/docker.sock"))
"""
    )
    refused = {key: access.refused for key, access in found.items() if key[1] in ("connect", "bind", "send")}
    assert refused == {
        ("inet:127.0.0.1:4321", "bind"): 0,
        ("inet:127.0.0.1:4321", "connect"): 0,
        ("inet:192.0.2.1:80", "connect"): 1,
        ("inet:[2001:db8::1]:443", "connect"): 1,
        ("inet:192.0.2.2:53", "send"): 1,
        ("inet:192.0.2.3:53", "send"): 1,
        ("unix:/tmp/ear", "bind"): 0,
        ("unix:@hidden", "bind"): 0,
        ("unix:/run/docker.sock", "connect"): 1,
    }
    assert {
        access.path
        for access in unexpected_accesses(found.values())
        if access.mode in ("connect", "bind", "send")
    } == {
        "inet:192.0.2.1:80",
        "inet:[2001:db8::1]:443",
        "inet:192.0.2.2:53",
        "inet:192.0.2.3:53",
        "unix:/run/docker.sock",
    }


def test_children_daemons_and_threads_are_heard_too(tried: Callable[..., Tried]) -> None:
    found = tried("""
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
    assert {("/workspace/by-a-shell", "write"), ("/workspace/by-a-thread", "write")} <= set(found)
    assert ("/workspace/by-a-daemon", "write") in found


def test_the_script_inherits_nothing_and_the_walls_stand_as_before(run: Runner, box_probe: str) -> None:
    access_log = AccessLog(run.folder)
    listened = run(box_probe, access_log=access_log).text
    access_log.write_step(1)
    access_log.close()
    plain = run(box_probe).text
    told, expected = json.loads(listened), json.loads(plain)
    assert told.pop("own listener") == "EBUSY"  # of which there can be only one, and it is ours
    assert told.pop("filters") == expected.pop("filters") + 1
    expected.pop("own listener")
    assert told == expected
    assert told["descriptors"] == ["0", "1", "2"]
    assert {told[name] for name in ("vsock", "unshare", "io_uring", "ptrace")} == {
        "EAFNOSUPPORT",
        "EPERM",
        "ENOSYS",
    }


@pytest.fixture
def box_probe() -> str:
    """A script that says what it has and what it may."""
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
        pass  # the listing's own
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "descriptors": sorted(fds),
    "vsock": vsock(),
    "unshare": call(272, 97, 0x10000000),
    "io_uring": call(425, 425, 1, 0),
    "ptrace": call(101, 117, 0),
    "own listener": call(317, 277, 1, 8, ctypes.addressof(allow)),
    "filters": int(status["Seccomp_filters"]),
    "privileges": [status[name].strip() for name in ("CapEff", "NoNewPrivs", "Seccomp", "Uid")],
    "opt": sorted(set(os.listdir("/opt")) - {"access_log.py"}),
    "environment": {name: value for name, value in os.environ.items() if name != "MARKER"},
    "processes": sorted(filter(str.isdigit, os.listdir("/proc"))) == ["1", str(os.getpid())],
}))
"""


def test_a_script_that_is_killed_leaves_its_ledger(tried: Callable[..., Tried]) -> None:
    found = tried("open('before', 'w')\nwhile True: open('/etc/passwd').close()", seconds=1.5)
    assert ("/workspace/before", "write") in found
    assert found["/etc/passwd", "read"].count > 10


def test_a_flood_is_bounded_and_hides_nothing_foreign(tried: Callable[..., Tried], run: Runner) -> None:
    found = tried(
        ATTEMPT
        + f"""
for number in range({MAX_PATHS} + 500): attempt(lambda: os.close(os.open(f"{{number}}", os.O_RDONLY)))
attempt(lambda: open("/etc/shadow"))
""".replace("print(error)", "pass")
    )
    assert found[f"/workspace/{OVERFLOW_NAME}", "read"].count >= 500
    assert ("/etc/shadow", "read") in found
    assert len(found) < MAX_PATHS + 1000


def test_long_paths_fill_the_ledger_no_further_than_its_bound() -> None:
    counts = AccessCounts()
    for number in range(2000):
        counts.add(f"/secret/{'x' * 4000}/{number}", "read", False)
        counts.add(f"inet:192.0.2.1:{number}", "connect", True)
    assert sum(len(str(row[0])) for row in counts.rows()) <= MAX_TOTAL_PATH_CHARS + 100
    assert next(row[2] for row in counts.rows() if row[0] == f"/{OVERFLOW_NAME}") > 1000


def test_names_that_are_no_text_are_told_readably(tried: Callable[..., Tried]) -> None:
    found = tried("open(b'\\xff\\n\\x1b[2J.txt', 'w')")
    assert ("/workspace/\\xff\n\x1b[2J.txt", "write") in found


def test_a_process_whose_name_is_no_text_is_heard_as_well(tried: Callable[..., Tried]) -> None:
    rename = "import ctypes, os; ctypes.CDLL(None).prctl(15, bytes([255, 254]))\n"
    assert ("/proc/self/status", "read") in tried(rename + 'open(f"/proc/{os.getpid()}/status")')


def test_an_honest_script_does_nothing_foreign(tried: Callable[..., Tried], run: Runner) -> None:
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
    assert unexpected_accesses(tried(code, limits=SMALL.replace(memory_gb=2)).values()) == ()


def test_foreign_is_what_lies_elsewhere() -> None:
    def access(path: str, mode: str = "read", refused: int = 0) -> Access:
        return Access.model_validate({"path": path, "mode": mode, "count": 1, "refused": refused})

    ordinary = [
        access("/workspace"),
        access("/workspace/a"),
        access("/usr/lib/x"),
        access("/tmp/x"),
        access("netlink"),
    ]
    ordinary += [access("/build/lib/libm.so.6", refused=1), access("inet:127.0.0.1:1", "connect")]
    strange = [
        access("/workspaces/a"),
        access("/proc/1/environ"),
        access("/"),
        access("/root/.ssh/id", refused=1),
    ]
    strange += [
        access("/build/lib/libm.so.6"),
        access("inet:1.2.3.4:1", "connect"),
        access(f"/{OVERFLOW_NAME}"),
    ]
    assert unexpected_accesses([*ordinary, *strange]) == tuple(strange)


def test_a_supervisor_that_dies_is_our_fault(run: Runner) -> None:
    access_log = AccessLog(run.folder)
    with access_log.record_command(run.box.uid) as listening:
        os.kill(listening.pid, signal.SIGKILL)
    with pytest.raises(Fault, match="access log stopped recording"):
        access_log.write_step(1)
    access_log.close()


class Stranger(AccessLog):
    """Listens as a user who has no business with the command."""

    def record_command(self, owner: int | None) -> AbstractContextManager[CommandRecorder]:
        return super().record_command((owner or 0) + 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_where_the_memory_of_a_command_cannot_be_read_that_is_said(run: Runner) -> None:
    with pytest.raises(SandboxFault, match="The access log cannot record: PermissionError: "):
        run("pass", access_log=Stranger(run.folder))


def test_a_supervisor_goes_with_a_harness_that_is_killed(run: Runner, until: Callable[..., None]) -> None:
    (run.workspace / "script.py").write_text("print('begun', flush=True)\nwhile True: pass")
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
        assert harness.stdout.readline() == b"begun\n"
        listeners = [
            pid
            for pid in list_process_tree(harness.pid)
            if b"supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        harness.kill()
    assert len(listeners) == 1
    until(lambda: not is_alive(listeners[0]) and not run.survivors())


def test_without_a_sandbox_there_is_no_ledger(toy: Path) -> None:
    with pytest.raises(UsageError, match="--record-access needs the bubblewrap sandbox"):
        prepare_setup(str(toy), "open", "none", lambda line: None, record_access=True)


@pytest.fixture
def ledger_env(setup: Setup, open_env: Callable[..., Environment]) -> Callable[[], Environment]:
    """A run of the toy with a ledger; again is a resume."""
    return lambda: open_env(setup=replace(setup, record_access=True))


def repl(env: Environment, code: str) -> str:
    return env.step(Call(action="Python REPL", args={"command": code}))


def paths(run: Path, step: int) -> set[str]:
    return {access.path for access in read_access(run, step)}


def test_an_interpreter_tells_each_step_its_own_also_after_a_resume(
    ledger_env: Callable[[], Environment], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    env = ledger_env()
    repl(env, "open('first', 'w'); x = 3")
    env.step(Call(action="List Files", args={"dir_path": "."}))
    repl(env, "open('second', 'w')")
    env.close()
    assert "/workspace/first" in paths(run, 1)
    assert not access_file(run, 2).exists()
    assert "/workspace/second" in paths(run, 3)
    assert "/workspace/first" not in paths(run, 3)

    RunFolder(run).rewind(2)
    assert not access_file(run, 3).exists()
    env = ledger_env()
    repl(env, "open('first', 'w'); x = 3")
    env.step(Call(action="List Files", args={"dir_path": "."}))
    assert repl(env, "open('third', 'w'); x") == "3"
    env.close()
    assert "/workspace/third" in paths(run, 3)
    assert "/workspace/first" not in paths(run, 3)


def test_a_script_and_an_interpreter_share_a_run(
    ledger_env: Callable[[], Environment], tmp_path: Path
) -> None:
    env = ledger_env()
    repl(env, "1")
    env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
    env.close()
    assert "/workspace/train.py" in paths(tmp_path / "run", 2)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["record_access"] is True


def test_a_batch_can_keep_ledgers(tmp_path: Path, toy: Path) -> None:
    plan = Plan(tasks=(str(toy),), agents=(AgentPlan(name="baseline"),), record_access=True)
    run_batch(tmp_path / "batch", plan, [""], lambda line: None, lambda view: None)
    (folder,) = (path.parent for path in (tmp_path / "batch").glob("*/run.json"))
    assert "/workspace/train.py" in paths(folder, 1)
    with pytest.raises(UsageError, match="--record-access needs the bubblewrap sandbox"):
        plan.replace(sandbox="none").expand_jobs()


def test_a_run_without_a_ledger_has_none_and_an_older_one_stays_readable(
    open_env: Callable[..., Environment], setup: Setup, tmp_path: Path
) -> None:
    env = open_env()
    env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
    assert not list(tmp_path.rglob("access"))
    spec = setup.create_run_spec(AgentSpec(agent="test"), 0, Limits()).model_dump()
    del spec["record_access"]
    assert RunSpec.model_validate(spec).record_access is False


def test_a_damaged_ledger_is_said_to_be(tmp_path: Path) -> None:
    place = access_file(tmp_path, 7)
    place.parent.mkdir()
    place.write_text(secrets.token_hex(8))
    with pytest.raises(Fault, match="damaged"):
        read_access(tmp_path, 7)
    assert names(str(place.parent)) == ["step-0007.jsonl"]
