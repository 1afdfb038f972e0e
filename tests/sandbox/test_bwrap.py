"""What the agent's code cannot see, access or change."""

import os
import shutil
import socket
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from script_runner import ScriptRunner

import mlagentbench
from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.bwrap import BubblewrapSandbox, hidden_paths
from mlagentbench.sandbox.cgroups import find_controller_folders
from mlagentbench.sandbox.selection import choose_unprivileged_uid, create_sandbox
from mlagentbench.system.cache import cache_dir

ATTEMPT = """
import ctypes, os, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, action):
    try: outcome = action()
    except Exception as error: outcome = None; print(name, 'refused', type(error).__name__)
    else: print(name, 'DONE', outcome)
"""


def run_attempts(run: ScriptRunner, code: str, **changes: object) -> dict[str, str]:
    """Run attempts in the sandbox; the outcome of each, by name."""
    result = run(ATTEMPT + textwrap.dedent(code), **changes)  # type: ignore[arg-type]
    assert result.exit_code == 0, result.text
    return dict(line.split(" ", 1) for line in result.text.splitlines())


def list_successes(outcomes: dict[str, str]) -> list[str]:
    assert outcomes
    return [f"{name} {outcome}" for name, outcome in outcomes.items() if not outcome.startswith("refused")]


def test_secret_paths_do_not_exist_inside(run: ScriptRunner) -> None:
    Path("/dev/shm/host-secret").touch()
    try:
        (run.folder / "answers.csv").write_text("42")
        package = str(Path(mlagentbench.__file__).parent)
        paths = [
            str(cache_dir()),
            package,
            str(run.folder),
            str(run.workspace),
            "/root",
            "/work",
            "/var",
            "/srv",
            "/mnt",
        ]
        paths += [
            "/etc/shadow",
            "/etc/ssl",
            "/sys",
            "/boot",
            "/run",
            "/dev/shm/host-secret",
            "/dev/mem",
            "/dev/sda",
        ]
        paths += [
            os.environ["HOME"],
            sys.prefix,
            f"/proc/{os.getpid()}",
            "/proc/1/root/root",
            "/proc/1/cwd/../root",
        ]
        result = run(f"""
import glob, os
print([path for path in {paths} if os.path.lexists(path)])
print(sorted(os.listdir('/')), os.listdir('/home'), os.listdir('/tmp'), os.listdir('/opt'),
      sorted(os.listdir('/etc')))
print([p for p in os.listdir('/proc') if p.isdigit()])
try: import mlagentbench; print('imported')
except ImportError: print('no harness')
""")
    finally:
        Path("/dev/shm/host-secret").unlink()
    lines = result.text.splitlines()
    assert lines[0] == "[]"
    assert "'agent'] [] ['" in lines[1]
    assert lines[2] == "['1', '2']"
    assert lines[3] == "no harness"
    for name in ("shadow", "ssh", "resolv.conf", "environment"):
        assert f"'{name}'" not in lines[1]


def test_no_file_inside_holds_a_secret_of_the_harness(
    run: ScriptRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "s3cret" + run.marker
    monkeypatch.setenv("SOME_API_KEY", secret)
    result = run("""
import glob, os
files = glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline')
found = [os.environb, *(open(file, 'rb').read() for file in files)]
print('s3cret' in str(found), len(found), sorted(os.environ))
""")
    assert result.text.startswith("False 5 ")
    assert "API" not in result.text
    assert "'SEED'" in result.text


def test_only_the_three_standard_descriptors_are_inherited(run: ScriptRunner) -> None:
    with (run.folder / "held").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        result = run("""
import os
print([os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in range(3)], os.listdir('/proc/self/fd')[3:])
for name in os.listdir('/proc/1/fd'): print(os.readlink(f'/proc/1/fd/{name}'))
""")
    assert (
        result.text.splitlines()[0] == "['/dev/null', 'pipe', 'pipe'] ['3']"
    )  # the last is the listing itself
    assert str(run.folder) not in result.text


def test_there_is_no_network(run: ScriptRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{run.marker}")
        abstract.listen()
        outcomes = run_attempts(
            run,
            f"""
            def connect(family, address):
                with socket.socket(family) as client: client.settimeout(2); client.connect(address)
            attempt('listener', lambda: connect(socket.AF_INET, ('127.0.0.1', {server.getsockname()[1]})))
            attempt('abstract', lambda: connect(socket.AF_UNIX, '\\0{run.marker}'))
            attempt('internet', lambda: connect(socket.AF_INET, ('1.1.1.1', 53)))
            attempt('internet6', lambda: connect(socket.AF_INET6, ('2606:4700::1111', 53)))
            attempt('name', lambda: socket.getaddrinfo('example.org', 80))
            attempt('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
            attempt('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
            attempt('vsock', lambda: socket.socket(socket.AF_VSOCK))
            print('interfaces', [name for _, name in socket.if_nameindex()])
            """,
        )
    assert list_successes(outcomes) == ["interfaces ['lo']"]


PRIVILEGE_ATTEMPTS = """
def call(name, *arguments):
    if getattr(libc, name)(*arguments) == -1: raise OSError(ctypes.get_errno(), name)
attempt('mount', lambda: call('mount', b'none', b'/tmp', b'tmpfs', 0, None))
attempt('bind', lambda: call('mount', b'/tmp', b'/workspace', None, 4096, None))
attempt('umount', lambda: call('umount2', b'/proc', 2))
attempt('remount', lambda: call('mount', b'none', b'/', None, 32 | 4096, None))
for bit in (0x10000000, 0x20000, 0x20000000, 0x40000000):
    attempt(f'unshare-{bit:x}', lambda: call('unshare', bit))
attempt('ptrace', lambda: call('ptrace', 16, 1, None, None))
attempt('setuid', lambda: os.setuid(0))
attempt('setgroups', lambda: os.setgroups([0]))
attempt('chroot', lambda: os.chroot('/tmp'))
attempt('device', lambda: os.mknod('/workspace/sda', 0o060666, os.makedev(8, 0)))
attempt('device-tmp', lambda: os.mknod('/tmp/mem', 0o020666, os.makedev(1, 1)))
attempt('chown', lambda: os.chown('/workspace/script.py', 0, 0))
attempt('hostname', lambda: socket.sethostname('x'))
for command in ('mount -t tmpfs none /tmp', 'sudo -n id', 'newgrp root', 'bwrap --dev-bind / / id'):
    attempt(command.split()[0] + '-program', lambda: subprocess.run(
        command.split(), check=True, capture_output=True, stdin=subprocess.DEVNULL))
import fcntl, pty
master, slave = pty.openpty()
attempt('tiocsti', lambda: fcntl.ioctl(slave, 0x5412, b'x'))
attempt('tty', lambda: open('/dev/tty'))
for name in ('/usr/x', '/etc/x', '/opt/x', '/opt/runtime/x', '/opt/python/x', '/x', '/dev/x', '/home/x'):
    attempt(name, lambda: open(name, 'w'))
for name in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/self/uid_map', '/proc/1/mem',
             '/proc/self/mem', '/proc/1/oom_score_adj', '/etc/passwd', '/etc/hosts', '/usr/bin/env',
             '/sys/fs/cgroup/pids/cgroup.procs', '/proc/self/setgroups', '/proc/1/clear_refs'):
    attempt(name, lambda: open(name, 'r+'))
for name in ('/proc/kcore', '/proc/kmsg', '/proc/1/map_files/x', '/proc/timer_list'):
    attempt(name, lambda: open(name, 'rb').read(1))
status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())
for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'): assert int(status[name], 16) == 0, name
assert status['NoNewPrivs'].strip() == '1' and status['Seccomp'].strip() == '2'
assert os.getuid() >= 1000 and os.getgroups() in ([], [os.getgid()])
"""


def test_no_privilege_can_be_gained(run: ScriptRunner) -> None:
    assert list_successes(run_attempts(run, PRIVILEGE_ATTEMPTS)) == []


def test_a_set_uid_file_gives_the_agent_no_privilege(run: ScriptRunner) -> None:
    result = run("""
import os, shutil, subprocess
shutil.copy('/usr/bin/id', 'id'); os.chmod('id', 0o6755)
print(subprocess.run(['./id', '-u'], capture_output=True, text=True).stdout)
os.symlink('/root', 'out'); os.link('id', 'again')
""")
    assert result.text.strip() == "1000"
    status = (run.workspace / "id").stat()
    assert (status.st_uid, status.st_gid) == (run.spec.uid, run.spec.uid) or os.geteuid() != 0
    assert status.st_uid >= 1_900_000_000 or os.geteuid() != 0


def test_read_only_files_cannot_be_changed_in_any_way(run: ScriptRunner) -> None:
    (run.workspace / "data" / "inner").mkdir(parents=True)
    (run.workspace / "data" / "inner" / "test.csv").write_text("given")
    (run.workspace / "evaluate.py").write_text("given")
    (run.workspace / "locked").mkdir()
    (run.workspace / "locked" / "a.txt").write_text("given")
    if run.spec.uid:
        subprocess.run(["chown", "-R", f"{run.spec.uid}:{run.spec.uid}", str(run.workspace)], check=True)
    outcomes = run_attempts(
        run,
        """
        import mmap, shutil
        for path in ('data/inner/test.csv', 'evaluate.py', 'locked/a.txt'):
            actions = {
                'open': lambda: open(path, 'r+'), 'append': lambda: open(path, 'a'),
                'create': lambda: open(path, 'w'),
                'truncate': lambda: os.truncate(path, 0), 'unlink': lambda: os.unlink(path),
                'rename': lambda: os.rename(path, 'mine'), 'over': lambda: os.replace('script.py', path),
                'chmod': lambda: os.chmod(path, 0o777), 'times': lambda: os.utime(path, (0, 0)),
                'link': lambda: os.link(path, 'linked'),
                'absolute': lambda: open(os.path.abspath(path), 'r+'),
                'again': lambda: open(f'/proc/self/fd/{os.open(path, os.O_RDONLY)}', 'r+'),
                'root': lambda: open(f'/proc/self/root/workspace/{path}', 'r+'),
                'map': lambda: mmap.mmap(os.open(path, os.O_RDWR), 5),
                'xattr': lambda: os.setxattr(path, 'user.x', b'y'),
                'exchange': lambda: libc.renameat2(-100, path.encode(), -100, b'script.py', 2) and 1 / 0,
            }
            for name, action in actions.items(): attempt(f'{name}-{path}', action)
        for path in ('data', 'data/inner', 'locked'):
            attempt(f'move-{path}', lambda: os.rename(path, 'elsewhere'))
            attempt(f'remove-{path}', lambda: shutil.rmtree(path))
        attempt('new', lambda: open('locked/new', 'w'))
        attempt('sibling', lambda: open('data/inner/new', 'w').write('mine'))
        attempt('own', lambda: os.rename('data/inner/new', 'data/inner/newer'))
        """,
        read_only_paths=("data/inner/test.csv", "evaluate.py", "locked"),
    )
    assert list_successes(outcomes) == ["sibling DONE 4", "own DONE None"]
    for path in ("data/inner/test.csv", "evaluate.py", "locked/a.txt"):
        assert (run.workspace / path).read_text() == "given"


def test_recorded_output_cannot_be_changed(run: ScriptRunner) -> None:
    result = run("""
import os
print('first')
for attempt in (lambda: os.ftruncate(1, 0), lambda: os.lseek(1, 0, 0), lambda: os.pwrite(1, b'x', 0)):
    try: attempt(); print('done')
    except OSError: pass
os.set_blocking(1, False); os.set_blocking(1, True)
print(open('/proc/self/fd/1', 'w').write('more'))
""")
    assert result.text == (run.folder / "output.txt").read_text()
    assert result.text.splitlines()[0] == "first"
    assert "done" not in result.text


def test_ipc_is_separate_from_the_host_and_removed_with_the_script(run: ScriptRunner) -> None:
    before = Path("/proc/sysvipc/shm").read_text()
    result = run("""
import ctypes
libc = ctypes.CDLL(None)
print(libc.semget(4242, 1, 0o1666) >= 0, len(open('/proc/sysvipc/sem').readlines()))
print(libc.shmget(4242, 1 << 20, 0o1666) >= 0, len(open('/proc/sysvipc/shm').readlines()))
""")
    shared_memory = ["True", "2"] if "memory" in find_controller_folders() else ["False", "1"]
    assert result.text.split() == ["True", "2", *shared_memory]
    assert Path("/proc/sysvipc/shm").read_text() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up being root")
def test_a_root_harness_starts_no_sandbox_without_an_unprivileged_uid(run: ScriptRunner) -> None:
    with pytest.raises(SandboxFault, match="uid of an unprivileged user"):
        run("print(1)", uid=None)


def test_without_bubblewrap_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="apt-get install bubblewrap"):
        create_sandbox("bwrap")


def broken_bwrap(folder: Path, script: str) -> BubblewrapSandbox:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    folder.chmod(0o755)
    found = BubblewrapSandbox()
    found._bwrap_path = program
    return found


@pytest.mark.parametrize("code", [0, 1, 127])
def test_a_bubblewrap_that_cannot_start_is_a_fault_not_a_failed_script(code: int, run: ScriptRunner) -> None:
    folder = run.folder / "bin"
    folder.mkdir()
    run.sandbox = broken_bwrap(
        folder, f"echo 'bwrap: No permissions to create new namespace' >&2; exit {code}"
    )
    with pytest.raises(SandboxFault, match="cannot be started on this machine: bwrap: No permissions"):
        run("print(1)")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its root")
def test_a_machine_that_forbids_namespaces_is_a_fault(run: ScriptRunner) -> None:
    (run.workspace / "script.py").write_text("print(1)")
    harness = Path(__file__).parent / "harness.py"
    command = [sys.executable, str(harness), "bwrap", str(run.workspace), run.marker, "9"]
    (run.folder / "root").mkdir()
    # The kernel creates no user namespaces for a process in a chroot.
    chroot_script = f'mount --rbind / {run.folder}/root && exec chroot {run.folder}/root "$@"'
    completed = subprocess.run(
        ["unshare", "-m", "sh", "-c", chroot_script, "sh", *command],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert completed.returncode == 1
    assert b"SandboxFault: The sandbox cannot be started on this machine: bwrap: " in completed.stderr


def test_a_missing_python_is_a_fault_not_a_failed_script(run: ScriptRunner) -> None:
    with pytest.raises(SandboxFault, match="no such program: snake"):
        run.sandbox.start(["snake"], run.spec)


@pytest.mark.skipif(os.geteuid() != 0, reason="writes below /usr")
def test_harness_files_in_a_mounted_folder_are_hidden(
    spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A harness installed below /usr or into the Python's own packages, and a cache there, too."""
    paths = [Path("/usr/local/share/some-cache"), Path("/usr/local/lib/some-app")]
    for path in paths:
        path.mkdir()
    try:
        monkeypatch.setenv("MLAGENTBENCH_HOME", str(paths[0]))
        monkeypatch.chdir(paths[1])
        prefix = spec.runtime.prefix_inside
        packages = next(
            path for path in spec.runtime.base_package_folders if path.is_relative_to(spec.runtime.prefix)
        )
        inside = packages / "mlagentbench"
        monkeypatch.setattr(mlagentbench, "__file__", str(inside / "__init__.py"))
        made = not inside.exists()
        inside.mkdir(exist_ok=True)
        try:
            found = hidden_paths(replace(spec, workspace=paths[0] / "runs" / "workspace"))
        finally:
            if made:
                inside.rmdir()
    finally:
        for path in paths:
            shutil.rmtree(path)
    assert {"/usr/local/share/some-cache", "/usr/local/lib/some-app"} <= set(found)
    assert f"{prefix}/{packages.relative_to(spec.runtime.prefix)}" in found
    assert not any(
        "mlagentbench" in path for path in found
    )  # covered with the packages, and not once more within


def test_a_working_folder_that_python_needs_is_not_hidden(
    run: ScriptRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/usr", "/usr/lib", "/usr/bin", str(run.spec.runtime.prefix / "lib")):
        monkeypatch.chdir(path)
        assert run("print(1)").exit_code == 0


def test_two_runs_have_different_users() -> None:
    assert os.geteuid() != 0 or choose_unprivileged_uid("one") != choose_unprivileged_uid("two")
