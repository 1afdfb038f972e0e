"""The sandbox without namespaces: the tests of bubblewrap again, and what namespaces would have prevented.

As an ordinary user (`make test-as-user`) the scripts have the same user as the harness, so that only the
sandbox stands between them.
"""

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import test_bwrap
import test_limits
import test_repl
import test_termination
import test_workloads
from script_runner import ScriptRunner, require_cleanup
from test_bwrap import list_successes, run_attempts
from test_repl import repl, run_code  # noqa: F401 - fixtures

import mlagentbench
from mlagentbench.errors import SandboxFault
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.landlock import filters, kernel
from mlagentbench.sandbox.landlock.rules import allow_except
from mlagentbench.sandbox.selection import create_sandbox
from mlagentbench.system.cache import cache_dir

pytestmark = pytest.mark.skipif(not kernel.landlock_version(), reason="this kernel has no Landlock")

# Each is collected here again, with the `run` fixture of this module.
REUSED = [
    test_bwrap.test_read_only_files_cannot_be_changed_in_any_way,
    test_bwrap.test_recorded_output_cannot_be_changed,
    test_bwrap.test_a_root_harness_starts_no_sandbox_without_an_unprivileged_uid,
    test_bwrap.test_a_missing_python_is_a_fault_not_a_failed_script,
    test_termination.test_a_script_is_killed_at_its_time_limit_if_it,
    test_termination.test_a_daemon_of_a_successful_script_is_killed,
    test_termination.test_the_exit_code_is_that_of_the_script,
    test_termination.test_a_script_can_kill_only_processes_of_its_own_sandbox,
    test_limits.test_a_fork_bomb_is_killed_within_seconds,
    test_limits.test_a_script_is_killed_at_the_disk_limit_when_the_disk_is_filled_with,
    test_limits.test_resource_limits_of_a_script_cannot_be_raised,
    test_repl.test_an_error_is_shown_and_the_interpreter_continues,
    test_repl.test_nothing_runs_between_two_commands,
    test_workloads.test_a_module_in_the_workspace_does_not_shadow_the_startup_of_the_sandbox,
]
globals().update({test.__name__: test for test in REUSED})


@pytest.fixture
def run(spec: SandboxSpec) -> Iterator[ScriptRunner]:
    """Runs scripts under Landlock; afterwards nothing may be left, whatever they did."""
    yield from require_cleanup(ScriptRunner(create_sandbox("landlock"), spec, spec.workspace.parent))
    assert not list(Path("/dev/shm").glob(f"mlagentbench-{os.getpid()}-*"))


CALLS = """
import fcntl, glob, signal, struct, threading
def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result == -1: raise OSError(ctypes.get_errno(), name)
    return result
def syscall(number, *arguments): return call('syscall', number, *arguments)
"""


@pytest.fixture
def secret(run: ScriptRunner) -> Path:
    """A file next to the workspace; an ordinary user owns it, as the scripts do."""
    path = run.folder / "answers.csv"
    path.write_text("42")
    path.chmod(0o600)
    return path


def test_no_file_outside_can_be_read_or_listed(run: ScriptRunner, secret: Path) -> None:
    package = Path(mlagentbench.__file__).parent
    shared = Path("/dev/shm", f"host-{run.marker}")
    shared.write_text("42")
    files = [secret, shared, package / "errors.py", package / "tasks/house-price/grade.py", "/etc/shadow"]
    files += ["/proc/1/cmdline", "/proc/net/tcp", "/etc/resolv.conf", "/proc/self/mountinfo/../../1/stat"]
    harness = [
        f"/proc/{os.getpid()}/{name}" for name in ("environ", "cmdline", "maps", "mem", "status", "stat")
    ]
    harness += [f"/proc/{os.getpid()}/{link}{secret}" for link in ("root", "cwd/../../../../../..")]
    folders = [
        "/",
        "/proc",
        f"/proc/{os.getpid()}",
        f"/proc/{os.getpid()}/fd",
        "/tmp",
        "/dev/shm",
        "/var/tmp",
    ]
    folders += ["/home", os.environ["HOME"], cache_dir(), cache_dir() / "temporary", secret.parent, "/run"]
    try:
        outcomes = run_attempts(
            run,
            f"""
            os.symlink({str(secret)!r}, 'link')
            for path in {[*map(str, files), *harness, "./link", "../answers.csv"]}:
                attempt('read-' + path.replace(' ', ''), lambda: open(path, 'rb').read(1))
                attempt('open-' + path, lambda: os.open(path, os.O_RDWR | os.O_NOFOLLOW))
                attempt('execute-' + path, lambda: subprocess.run([path]))
                attempt('attributes-' + path, lambda: os.listxattr(path))
                attempt('attribute-' + path, lambda: os.getxattr(path, 'user.answer'))
            for path in {[*map(str, folders), ".."]}:
                attempt('list-' + path, lambda: os.listdir(path))
                attempt('create-' + path, lambda: open(path + '/created', 'w'))
                attempt('temporary-' + path, lambda: os.open(path, os.O_TMPFILE | os.O_RDWR))
            """,
        )
    finally:
        shared.unlink()
    assert list_successes(outcomes) == []


def test_files_outside_cannot_be_changed_moved_or_linked(run: ScriptRunner, secret: Path) -> None:
    before = secret.stat()
    packages = run.spec.runtime.packages / "numpy" / "__init__.py"
    outcomes = run_attempts(
        run,
        CALLS
        + f"""
secret, name = {str(secret)!r}, 'answers.csv'
os.symlink(secret, 'link'); os.symlink('..', 'up'); os.mkdir('mine')
parent = os.open('..', os.O_PATH)
package = os.open({str(packages)!r} if os.path.exists({str(packages)!r}) else '/usr/bin/env', os.O_RDONLY)
spellings = [secret, '../' + name, 'link', 'up/' + name, '/proc/self/cwd/../' + name, './/../' + name,
             f'/proc/self/fd/{{parent}}/' + name, f'/proc/{{os.getpid()}}/root' + secret]
for n, path in enumerate(spellings):
    attempt(f'chmod-{{n}}', lambda: os.chmod(path, 0o777))
    attempt(f'times-{{n}}', lambda: os.utime(path, (0, 0)))
    attempt(f'own-times-{{n}}', lambda: path == 'link' and 1 / 0 or os.utime(path, follow_symlinks=False))
    attempt(f'chown-{{n}}', lambda: os.chown(path, os.getuid(), os.getgid()))
    attempt(f'xattr-{{n}}', lambda: os.setxattr(path, 'user.x', b'y'))
    attempt(f'truncate-{{n}}', lambda: os.truncate(path, 0))
    attempt(f'open-truncate-{{n}}', lambda: os.open(path, os.O_RDONLY | os.O_TRUNC))
    attempt(f'append-{{n}}', lambda: open(path, 'a'))
    if path != 'link':
        attempt(f'unlink-{{n}}', lambda: os.unlink(path))
        attempt(f'rename-{{n}}', lambda: os.rename(path, 'stolen'))
    attempt(f'replace-{{n}}', lambda: path == 'link' and 1 / 0 or os.replace('script.py', path))
    attempt(f'link-{{n}}', lambda: path == 'link' and 1 / 0 or os.link(path, 'linked'))
attempt('at', lambda: os.chmod(name, 0o777, dir_fd=parent))
attempt('unlink-at', lambda: os.unlink(name, dir_fd=parent))
attempt('rename-at', lambda: os.rename(name, 'stolen', src_dir_fd=parent))
attempt('exchange', lambda: call('renameat2', -100, secret.encode(), -100, b'script.py', 2))
attempt('move-workspace', lambda: os.rename(os.getcwd(), os.getcwd() + '2'))
attempt('remove-workspace', lambda: os.rmdir('.'))
attempt('fchmod', lambda: os.fchmod(package, 0o777))
attempt('futimens', lambda: os.utime(package, (0, 0)))
attempt('fchown', lambda: os.fchown(package, os.getuid(), os.getgid()))
attempt('empty-path', lambda: syscall(452, package, b'', 0o777, 0x1000))
attempt('folder', lambda: os.mkdir('../created'))
attempt('fifo', lambda: os.mkfifo('../created'))
attempt('bind', lambda: socket.socket(socket.AF_UNIX).bind('../created'))
""",
    )
    assert list_successes(outcomes) == []
    after = secret.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_nlink) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_nlink,
    )
    assert secret.read_text() == "42"
    assert (run.workspace / "script.py").is_file()


def test_a_path_that_changes_while_it_is_checked_reaches_no_file_outside(
    run: ScriptRunner, secret: Path
) -> None:
    """One thread writes another path into the memory that the calls of the other thread point to."""
    result = run(f"""
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
paths = (os.path.abspath('mine').encode(), {os.fsencode(secret)!r})
inside, outside = (path.ljust(120, b'\\0') for path in paths)
buffer, stopped = ctypes.create_string_buffer(inside, 200), False
def swap():
    while not stopped:
        ctypes.memmove(buffer, outside, 120); ctypes.memmove(buffer, inside, 120)
thread = threading.Thread(target=swap); thread.start()
end, done = time.monotonic() + 1.5, 0
while time.monotonic() < end:
    open('mine', 'w').close()
    done += libc.chmod(buffer, 0o777) == 0
    libc.rename(buffer, b'stolen'); libc.unlink(buffer)
stopped = True; thread.join()
print(done > 0)
""")
    assert result.text.strip() == "True"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.read_text() == "42"


def test_processes_outside_cannot_be_signalled_traced_or_slowed_down(run: ScriptRunner) -> None:
    """The harness is the test itself: it would not survive."""
    affinity, priority = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    outcomes = run_attempts(
        run,
        CALLS
        + f"""
import resource
supervisor = os.getppid()
for pid in ({os.getpid()}, {os.getppid()}, supervisor, 1):
    attempt(f'kill-{{pid}}', lambda: os.kill(pid, 9))
    attempt(f'exists-{{pid}}', lambda: os.kill(pid, 0))
    attempt(f'group-{{pid}}', lambda: os.killpg(pid, 9))
    attempt(f'tkill-{{pid}}', lambda: syscall(200, pid, 9))
    attempt(f'tgkill-{{pid}}', lambda: syscall(234, pid, pid, 9))
    attempt(f'queue-{{pid}}', lambda: syscall(129, pid, 9, ctypes.create_string_buffer(128)))
    attempt(f'pidfd-{{pid}}', lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 9))
    attempt(f'cpu-{{pid}}', lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)))
    attempt(f'files-{{pid}}', lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE))
    attempt(f'nice-{{pid}}', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt(f'affinity-{{pid}}', lambda: os.sched_setaffinity(pid, {{0}}))
    attempt(f'scheduler-{{pid}}', lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))
    attempt(f'io-{{pid}}', lambda: syscall(251, 1, pid, 3 << 13))
    attempt(f'trace-{{pid}}', lambda: call('ptrace', 16, pid, None, None))
    attempt(f'memory-{{pid}}', lambda: open(f'/proc/{{pid}}/mem', 'rb+'))
    attempt(f'descriptor-{{pid}}', lambda: syscall(438, os.pidfd_open(pid), 1, 0))
    left, right = os.pipe()
    attempt(f'owner-{{pid}}', lambda: fcntl.fcntl(left, fcntl.F_SETOWN, pid))
    attempt(f'owner-ex-{{pid}}', lambda: fcntl.fcntl(left, 15, struct.pack('ii', 1, pid)))
    attempt(f'owner-ioctl-{{pid}}', lambda: fcntl.ioctl(left, 0x8901, struct.pack('i', pid)))
    attempt(f'session-{{pid}}', lambda: os.setpgid(0, os.getpgid(pid)))
attempt('user', lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19))
attempt('watch', lambda: syscall(294, 0))
""",
    )
    # The group 1 means every process that it may signal, of which there are none.
    assert [name for name in list_successes(outcomes) if name != "group-1 DONE None"] == []
    assert (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)) == (affinity, priority)


def test_a_script_can_signal_its_own_processes(run: ScriptRunner) -> None:
    result = run("""
import os, signal, subprocess, threading, time
child = subprocess.Popen(['sleep', '60'], start_new_session=True)
os.sched_setaffinity(child.pid, os.sched_getaffinity(0)); os.setpriority(os.PRIO_PROCESS, child.pid, 19)
child.terminate(); print(child.wait())
group = subprocess.Popen(['sh', '-c', 'sleep 60 & wait'], start_new_session=True)
os.killpg(group.pid, signal.SIGKILL); print(group.wait())
others = [subprocess.Popen(['sleep', '60']) for _ in range(2)]
os.kill(-1, signal.SIGTERM); print([other.wait() for other in others])
signal.signal(signal.SIGUSR1, lambda *_: print('received'))
os.kill(0, signal.SIGUSR1); signal.raise_signal(signal.SIGUSR1)
""")
    assert result.text.split("\n")[:3] == ["-15", "-9", "[-15, -15]"], result.text
    assert result.text.count("received") == 2
    assert result.exit_code == 0


def test_no_socket_outside_can_be_reached(run: ScriptRunner) -> None:
    path = run.folder / "service"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as service,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        abstract.bind(f"\0{run.marker}")
        service.bind(str(path))
        datagrams.bind(f"{path}-datagrams")
        for listener in (abstract, service):
            listener.listen()
        path.chmod(0o777)
        outcomes = run_attempts(
            run,
            f"""
            def connect(family, address, kind=socket.SOCK_STREAM):
                with socket.socket(family, kind) as client: client.settimeout(2); client.connect(address)
            os.symlink({str(path)!r}, 'link'); os.symlink('..', 'up')
            for path in ({str(path)!r}, '../service', 'link', 'up/service', '/proc/self/cwd/../service'):
                attempt('unix-' + path, lambda: connect(socket.AF_UNIX, path))
            attempt('abstract', lambda: connect(socket.AF_UNIX, '\\0{run.marker}'))
            datagrams = {f"{path}-datagrams"!r}
            attempt('datagram', lambda: connect(socket.AF_UNIX, datagrams, socket.SOCK_DGRAM))
            attempt('pair', lambda: socket.socketpair(type=socket.SOCK_DGRAM)[0].connect(datagrams))
            attempt('stream-pair', lambda: socket.socketpair()[0].sendto(b'x', {str(path)!r}))
            for address in (('127.0.0.1', {server.getsockname()[1]}), ('1.1.1.1', 53)):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
                    attempt(f'inet-{{address[0]}}-{{kind}}', lambda: connect(socket.AF_INET, address, kind))
            for family in (socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_VSOCK, 38):
                attempt(f'family-{{family}}', lambda: socket.socket(family))
            attempt('server', lambda: socket.create_server(('127.0.0.1', 0)))
            """,
        )
        assert list_successes(outcomes) == []
        assert select.select([server, abstract, service, datagrams], [], [], 0)[0] == []


def test_shared_memory_is_private_and_ipc_of_the_host_is_refused(run: ScriptRunner) -> None:
    host = Path("/dev/shm", f"host-{run.marker}")
    host.write_text("42")
    try:
        result = run(f"""
import ctypes, os
from multiprocessing import shared_memory
libc = ctypes.CDLL(None, use_errno=True)
name = 'host-{run.marker}'
for path in (name, '../' * 3 + 'etc/shadow'):
    try: shared_memory.SharedMemory(path.replace('/', '%')); print('attached')
    except OSError: pass
    for flags in (os.O_RDWR | os.O_NOFOLLOW, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDONLY):
        try: print(os.read(os.open('/dev/shm/' + path, flags), 9), 'read')
        except OSError: pass
mine = shared_memory.SharedMemory('mine', create=True, size=1000); mine.buf[0] = 7
again = shared_memory.SharedMemory('mine'); print(again.buf[0])
for number, arguments in ((29, (4242, 4096, 0o1666)), (64, (4242, 1, 0o1666)), (68, (4242, 0o1666))):
    if libc.syscall(number, *arguments) >= 0: print('shared')
mine.unlink()
""")
    finally:
        assert host.read_text() == "42"
        host.unlink()
    assert result.text.splitlines() == ["b'' read", "7"], result.text  # the empty one is the script's own


def test_no_privilege_can_be_gained(run: ScriptRunner) -> None:
    attempts = test_bwrap.PRIVILEGE_ATTEMPTS.replace("master, slave = pty.openpty()", "master = slave = 0")
    dropped = "for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')"
    attempts = attempts.replace(dropped, "for name in ('CapInh', 'CapPrm', 'CapEff', 'CapAmb')")
    gained = list_successes(run_attempts(run, attempts.replace("'/workspace", "'./")))
    # Its own temporary folder and its own memory.
    assert [name for name in gained if not name.startswith(("/proc/self/", "chown"))] == []


def test_processes_cannot_escape_by_becoming_daemons_of_daemons(run: ScriptRunner) -> None:
    result = run("""
import ctypes, os, signal, time
libc = ctypes.CDLL(None)
for number in range(6):
    if os.fork() == 0:
        os.setsid(); libc.prctl(36, 1, 0, 0, 0); libc.prctl(1, 0, 0, 0, 0)
        os.closerange(0, 20); os.environ.clear()
        if os.fork(): os._exit(0)
        libc.prctl(15, b'kworker', 0, 0, 0)
        while True:
            if os.fork(): os._exit(0)
            open(f'alive-{number}', 'w').close()
time.sleep(0.3)
print(len([name for name in os.listdir() if name.startswith('alive')]) > 0)
""")
    assert (result.exit_code, result.text.strip()) == (0, "True")
    stamps = [path.stat().st_mtime_ns for path in sorted(run.workspace.glob("alive-*"))]
    assert run("import time; time.sleep(0.2)").exit_code == 0
    assert [path.stat().st_mtime_ns for path in sorted(run.workspace.glob("alive-*"))] == stamps


def test_everything_dies_when_the_harness_is_killed(run: ScriptRunner) -> None:
    test_termination.start_and_kill_harness(run, "landlock")
    test_termination.wait_until_gone(run.survivors)
    test_termination.start_harness(run, "bwrap", "print('done')").communicate(timeout=30)


def test_ordinary_programs_work(run: ScriptRunner) -> None:
    result = run(
        """
import asyncio, multiprocessing, os, shutil, sqlite3, subprocess, sys, tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import Manager, reduction
def square(x): return x * x
def send_descriptor(connection):
    with open('sent') as file: reduction.send_handle(connection, file.fileno(), os.getppid())
async def run_true(): return await (await asyncio.create_subprocess_exec('true')).wait()
if __name__ == '__main__':
    import numpy
    for method in ('fork', 'spawn'):
        with multiprocessing.get_context(method).Pool(2) as pool: print(pool.map(square, range(3)))
    with Manager() as manager: print(dict(manager.dict(a=1)))
    with ProcessPoolExecutor(2) as pool: print(list(pool.map(square, range(3))))
    print(asyncio.run(run_true()))
    with open('file', 'w') as file: file.write('x')
    os.chmod('file', 0o750); shutil.copy2('file', 'copy'); os.makedirs('a/b'); os.rename('copy', 'a/b/moved')
    print(oct(os.stat('a/b/moved').st_mode), os.stat('file').st_mtime == os.stat('a/b/moved').st_mtime)
    os.link('file', 'hard'); os.symlink('file', 'soft'); shutil.copytree('a', 'c'); shutil.rmtree('a')
    with tempfile.TemporaryDirectory() as folder: open(folder + '/x', 'w').close()
    with sqlite3.connect('data.sqlite') as base: base.execute('create table t (x)')
    print(sorted(os.listdir()), len(os.listdir(os.path.expanduser('~'))), os.stat('hard').st_nlink)
    shells = [subprocess.run(['sh', '-c', 'echo $SEED | sort'], stdout=-1, text=True) for _ in range(9)]
    print({shell.stdout.strip() for shell in shells})
    print(open('/proc/self/status').read(5), os.cpu_count() > 0, sys.prefix != sys.base_prefix)
""",
        limits=test_workloads.LARGE,
    )
    assert result.text.splitlines() == [
        *["[0, 1, 4]"] * 2,
        "{'a': 1}",
        "[0, 1, 4]",
        "0",
        "0o100750 True",
        "['c', 'data.sqlite', 'file', 'hard', 'script.py', 'soft'] 0 2",
        "{'7'}",
        "Name: True True",
    ], result.text


def test_temporary_files_count_as_disk_and_shared_memory_as_memory(run: ScriptRunner) -> None:
    filler = """
import os, time
for name in ('a', 'b'): open(os.environ['TMPDIR'] + '/' + name, 'wb').write(bytes(30 << 20))
time.sleep(60)
"""
    assert run(filler).limit == "disk"
    filler = """
import time
from multiprocessing import shared_memory
kept = [shared_memory.SharedMemory(create=True, size=40 << 20) for _ in range(16)]
for memory in kept: memory.buf[:] = bytes(40 << 20)
time.sleep(60)
"""
    assert run(filler).limit == "memory"


@pytest.mark.parametrize("method", sorted(test_limits.MEMORY_USERS.keys() - {"files in memory"}))
def test_a_script_is_killed_at_the_memory_limit_when_memory_is_used_by(
    method: str, run: ScriptRunner
) -> None:
    assert run(test_limits.MEMORY_USERS[method]).limit == "memory"


def test_what_it_cannot_isolate_is_listed(run: ScriptRunner) -> None:
    listed = " ".join(run.sandbox.limitations)
    assert "no pid namespace" in listed and "no network namespace" in listed and "Landlock version" in listed


def test_mounts_at_other_paths_are_a_fault(run: ScriptRunner, secret: Path) -> None:
    with pytest.raises(SandboxFault, match="cannot mount"):
        run("print(1)", mounts=((secret, "/opt/answers.csv"),))


def test_a_folder_with_a_hidden_child_is_replaced_by_its_other_children(tmp_path: Path) -> None:
    for name in ("lib/own", "lib/hidden/harness", "bin"):
        (tmp_path / name).mkdir(parents=True)
    rules = dict(allow_except(tmp_path, [tmp_path / "lib" / "hidden"], kernel.READ))
    assert rules == {
        str(tmp_path): kernel.READ_DIR,
        str(tmp_path / "lib"): kernel.READ_DIR,
        str(tmp_path / "lib" / "own"): kernel.READ,
        str(tmp_path / "bin"): kernel.READ,
    }


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6, 7])
def test_files_outside_are_out_of_reach_with_every_version_of_landlock(
    version: int, run: ScriptRunner, secret: Path
) -> None:
    if version > kernel.landlock_version():
        pytest.skip("this kernel's Landlock is older")
    run.sandbox.version = version  # type: ignore[attr-defined]
    outcomes = run_attempts(
        run,
        f"""
        own = open('own', 'w'); own.write('x'); own.close(); os.mkdir('d'); os.rename('own', 'd/own')
        attempt('read', lambda: open({str(secret)!r}))
        attempt('truncate', lambda: os.truncate({str(secret)!r}, 0))
        attempt('kill', lambda: os.kill({os.getpid()}, 0))
        attempt('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\\0{run.marker}'))
        attempt('network', lambda: socket.socket())
        packages = {str(run.spec.runtime.packages)!r}
        attempt('open-truncate', lambda: os.open(sys.modules['os'].__file__, os.O_RDONLY | os.O_TRUNC))
        """,
    )
    assert list_successes(outcomes) == []
    assert secret.read_text() == "42"


def test_every_call_has_one_rule_on_every_architecture() -> None:
    for machine in ("x86_64", "aarch64"):
        calls = filters.decided_calls(machine)
        assert len({name for _, name in calls.values()}) == len(calls)
        assert len(filters.build_command_filter(1, machine=machine)) // 8 < 4096  # the kernel's limit
