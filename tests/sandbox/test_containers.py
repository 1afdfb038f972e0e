"""The guarantees of the sandbox in containers: the tests of bubblewrap, run again with each engine."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import test_bwrap
import test_limits
import test_repl
import test_termination
import test_unprivileged_harness
import test_workloads
from script_runner import ScriptRunner, find_marked_pids, require_cleanup
from test_repl import repl, run_code  # noqa: F401 - fixtures

from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.selection import create_sandbox
from mlagentbench.system.cache import cache_dir

# Each is collected here again, with the `run` fixture of this module.
REUSED = [
    test_bwrap.test_there_is_no_network,
    test_bwrap.test_read_only_files_cannot_be_changed_in_any_way,
    test_bwrap.test_recorded_output_cannot_be_changed,
    test_bwrap.test_ipc_is_separate_from_the_host_and_removed_with_the_script,
    test_bwrap.test_a_root_harness_starts_no_sandbox_without_an_unprivileged_uid,
    test_bwrap.test_a_missing_python_is_a_fault_not_a_failed_script,
    test_termination.test_a_script_is_killed_at_its_time_limit_if_it,
    test_termination.test_a_daemon_of_a_successful_script_is_killed,
    test_termination.test_the_exit_code_is_that_of_the_script,
    test_termination.test_a_script_can_kill_only_processes_of_its_own_sandbox,
    test_limits.test_a_script_is_killed_at_the_memory_limit_when_memory_is_used_by,
    test_limits.test_tmpfs_is_small_and_the_script_gets_an_error_when_it_is_full,
    test_limits.test_a_fork_bomb_is_killed_within_seconds,
    test_limits.test_a_script_is_killed_at_the_disk_limit_when_the_disk_is_filled_with,
    test_limits.test_one_big_file_stops_at_the_limit_with_its_own_error,
    test_limits.test_a_flood_of_output_is_stored_up_to_a_maximum,
    test_repl.test_variables_are_kept_and_the_last_value_is_shown,
    test_repl.test_an_error_is_shown_and_the_interpreter_continues,
    test_repl.test_an_endless_loop_is_killed_at_the_limit_and_a_new_interpreter_can_start,
    test_repl.test_nothing_runs_between_two_commands,
    test_repl.test_a_flood_of_output_is_cut_and_the_interpreter_continues,
    test_workloads.test_tables_models_and_processes_work,
    test_workloads.test_asyncio_shared_memory_and_loopback_servers_work,
    test_workloads.test_a_module_in_the_workspace_does_not_shadow_the_startup_of_the_sandbox,
]
globals().update({test.__name__: test for test in REUSED})


# Its own memory is its own, what opens a map may still not write it, and what is masked is empty.
HARMLESS = ("/proc/self/mem ", "/proc/self/uid_map ", "/proc/timer_list DONE b''")


def _find_problem(engine: str, folder: Path) -> str:
    """Why the engine does not work on this machine, or ""; podman is tried with runc if crun fails."""
    if not shutil.which(engine):
        return f"{engine} is not installed"
    problem = _try_engine(engine)
    if problem and engine == "podman":
        config = folder / "containers.conf"
        config.write_text('[engine]\nruntime = "runc"\n')
        os.environ["CONTAINERS_CONF"] = str(config)
        problem = _try_engine(engine)
    return problem


def _try_engine(engine: str) -> str:
    try:
        image = create_sandbox(engine)._image_arguments  # type: ignore[attr-defined]
    except SandboxFault as fault:
        return str(fault)
    limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
    options = ["--rm", "--network", "none", *limits, "--volume", "/usr:/usr:ro"]
    command = [engine, "run", *options, *image, "/bin/true"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{engine} does not work here: {completed.stderr.strip()[:200]}" if completed.returncode else ""


@pytest.fixture(scope="session", params=["podman", "docker"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Each engine that works on this machine."""
    if problem := _find_problem(request.param, tmp_path_factory.mktemp("engine")):
        pytest.skip(problem)
    name: str = request.param
    return name


@pytest.fixture
def run(engine: str, spec: SandboxSpec) -> Iterator[ScriptRunner]:
    """Runs scripts in containers; afterwards nothing may be left, whatever they did."""
    yield from require_cleanup(ScriptRunner(create_sandbox(engine), spec, spec.workspace.parent))
    left = subprocess.run([engine, "ps", "--all", "--quiet"], capture_output=True, text=True, check=True)
    assert left.stdout == ""


pytestmark = pytest.mark.slow


def test_no_privilege_can_be_gained_in_a_container(run: ScriptRunner) -> None:
    gained = test_bwrap.list_successes(test_bwrap.run_attempts(run, test_bwrap.PRIVILEGE_ATTEMPTS))
    assert [line for line in gained if not line.startswith(HARMLESS)] == []


def test_resource_limits_of_a_script_cannot_be_raised_in_a_container(run: ScriptRunner) -> None:
    done, numbers = test_limits.try_to_raise_limits(run)
    assert done in (
        [],
        ["did 5"],
    )  # the latter is how eager the kernel is to kill it, which not every root can fix
    assert numbers["CORE"] <= 1 and numbers["NOFILE"] <= 4096
    assert numbers["RTPRIO"] == numbers["NICE"] == 0


def test_a_script_that_lowers_its_oom_score_is_killed_at_its_memory_limit(run: ScriptRunner) -> None:
    spared = "try: open('/proc/self/oom_score_adj', 'w').write('-1000')\nexcept OSError: pass\n"
    result = run(spared + test_limits.MEMORY_USERS["one process"])
    assert result.limit == "memory" and "started" in result.text


def test_the_harness_and_its_files_are_not_inside(run: ScriptRunner) -> None:
    (run.folder / "answers.csv").write_text("42")
    paths = [
        str(cache_dir()),
        str(run.folder),
        str(run.workspace),
        "/root",
        "/work",
        "/var",
        "/srv",
        "/mnt",
        "/boot",
    ]
    paths += ["/etc/shadow", "/etc/ssl", "/dev/mem", "/dev/sda", os.environ["HOME"], sys.prefix]
    paths += [
        f"/proc/{os.getpid()}",
        "/proc/1/root/root",
        "/sys/class",
        "/sys/devices",
        "/run/sandbox/control",
    ]
    result = run(f"""
import os
print([path for path in {paths} if os.path.lexists(path)])
processes = sum(p.isdigit() for p in os.listdir('/proc'))
print(processes, os.listdir('/tmp'), os.listdir('/home'), sorted(os.environ))
try: import mlagentbench; print('imported')
except ImportError: print('no harness')
print(repr(open('/etc/resolv.conf').read()))
""")
    lines = result.text.splitlines()
    assert lines[0] == "[]"
    assert lines[3] == "''"
    assert lines[1].startswith("2 [] ['agent'] ['HOME', 'LANG', ")
    assert lines[2] == "no harness"


def test_a_container_dies_when_its_harness_is_killed(run: ScriptRunner) -> None:
    test_termination.start_and_kill_harness(run, run.sandbox.name)
    test_termination.wait_until_gone(run.survivors)
    test_termination.start_harness(run, "bwrap", "print('done')").communicate(timeout=30)


def test_a_paused_interpreter_dies_with_its_harness(run: ScriptRunner) -> None:
    code = """
import os, sys
from pathlib import Path
from mlagentbench.records import Limits
from mlagentbench.runtimes.base import find_runtime
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.repl import Repl
from mlagentbench.sandbox.selection import create_sandbox
workspace, marker = Path(sys.argv[1]), sys.argv[2]
uid = workspace.stat().st_uid if os.geteuid() == 0 else None
limits = Limits(memory_gb=0.5, processes=64)
spec = SandboxSpec(workspace, find_runtime("tabular"), limits, environment={"MARKER": marker}, uid=uid)
repl = Repl(create_sandbox(sys.argv[3]), spec)
repl.run("x = 1", 20, CommandOutput())
os.kill(os.getpid(), 9)
"""
    arguments = [str(run.workspace), run.marker, run.sandbox.name]
    killed = subprocess.run([sys.executable, "-c", code, *arguments], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    test_termination.wait_until_gone(run.survivors)
    test_termination.start_harness(run, "bwrap", "print('done')").communicate(timeout=30)


ROOTLESS = """
import os, socket
print(os.getuid(), open('/proc/self/uid_map').read().split()[:3], [name for _, name in socket.if_nameindex()])
for name in ('/etc/x', '/usr/x', '/opt/runtime/x'):
    try: open(name, 'w'); print('wrote', name)
    except OSError: pass
open('mine', 'w').write('x')
print(open('/proc/self/status').read().split('Seccomp_filters:')[1].split()[0])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_podman_needs_no_root(run: ScriptRunner) -> None:
    """An ordinary user with subordinate uids gets a container in which the uid is the same."""
    if run.sandbox.name != "podman":
        pytest.skip("of docker, only its daemon decides who it is")
    user, home = test_unprivileged_harness.UID, run.folder / "home"
    config = home / ".config" / "containers" / "containers.conf"
    config.parent.mkdir(parents=True)
    config.write_text('[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\n')
    (run.folder / "passwd").write_text(
        f"{Path('/etc/passwd').read_text()}tester:x:{user}:{user}::{home}:/bin/sh\n"
    )
    (run.folder / "numbers").write_text("tester:200000:65536\n")
    subprocess.run(["chown", "-R", str(user), str(home)], check=True)
    files = {"passwd": "passwd", "subuid": "numbers", "subgid": "numbers"}
    before = " && ".join(f"mount --bind {run.folder}/{name} /etc/{path}" for path, name in files.items())
    found = test_unprivileged_harness.as_user(run, ROOTLESS, sandbox="podman", before=before)
    text = str(found["text"])
    assert (found["exit_code"], found["limit"]) == (0, None), text
    assert text.startswith(f"{user} [") and "['lo']" in text and "wrote" not in text
    assert (run.workspace / "mine").stat().st_uid == user
    endless = test_unprivileged_harness.as_user(
        run, "print('started', flush=True)\nwhile True: pass", 1.5, "podman", before
    )
    assert endless["limit"] == "time" and "started" in str(endless["text"])
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n"
    assert test_unprivileged_harness.as_user(run, bomb, 20, "podman", before)["limit"] == "processes"
    assert run.survivors() == []
    # What podman stored belongs to users that exist in the container only.
    subprocess.run(["rm", "-rf", str(home)], check=True)


@pytest.fixture(scope="session")
def root_file_system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Debian, by debootstrap; one that was made before may be named."""
    if made_before := os.environ.get("MLAGENTBENCH_TEST_DEBIAN"):
        return Path(made_before)
    if not shutil.which("debootstrap") or os.geteuid() != 0:
        pytest.skip("no debootstrap: apt-get install debootstrap")
    folder = tmp_path_factory.mktemp("debian") / "root"
    more = (
        "--include=libssl3,libffi8,libsqlite3-0,libbz2-1.0,liblzma5,libgomp1,libreadline8,libncursesw6,zlib1g"
    )
    made = subprocess.run(
        ["debootstrap", "--variant=minbase", more, "bookworm", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    if made.returncode:
        pytest.skip(f"debootstrap failed: {made.stdout[-200:]}")
    return folder


@pytest.mark.parametrize("how", ["folder", "image"])
def test_a_root_file_system_of_debootstrap_can_be_used_as_an_image(
    how: str, root_file_system: Path, run: ScriptRunner
) -> None:
    engine, name = run.sandbox.name, "localhost/mlagentbench-test-debian:latest"
    if how == "image":
        with subprocess.Popen(["tar", "-C", str(root_file_system), "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run([engine, "import", "-", name], stdin=tar.stdout, check=True, capture_output=True)
        run.sandbox = create_sandbox(f"{engine}:{name}")
    elif engine == "podman":
        run.sandbox = create_sandbox(f"podman:{root_file_system}")
    else:
        pytest.skip("docker cannot use a folder as a root file system")
    result = run("""
import os, numpy, sqlite3, ssl
version = open('/etc/debian_version').read().split('.')[0]
print(version, os.path.exists('/usr/bin/debconf'), numpy.arange(3).sum())
for name in ('/etc/x', '/usr/x', '/opt/runtime/x', '/var/x'):
    try: open(name, 'w')
    except OSError: continue
    print('wrote', name)
open('mine', 'w').write('x')
""")
    assert (result.exit_code, result.text.strip()) == (0, "12 True 3"), result.text
    assert (run.workspace / "mine").read_text() == "x"
    assert not (root_file_system / "workspace").exists()  # nothing of ours is left in it
    if how == "image":
        subprocess.run([engine, "rmi", "--force", name], check=True, capture_output=True)


def test_a_whole_run_in_containers_is_graded_like_any_other(
    engine: str, toy: Path, tmp_path: Path, cli_process
) -> None:  # type: ignore[no-untyped-def]
    done = cli_process(
        "run", toy, "--agent", "reference", "--sandbox", engine, "--out", tmp_path / "run", "--json"
    )
    result = json.loads(done.stdout)
    assert (result["score"], result["success"], result["unsandboxed"]) == (0.0, True, False), done.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["sandbox"] == engine


def test_submitted_code_is_timed_in_containers(engine: str, tmp_path: Path, cli_process) -> None:  # type: ignore[no-untyped-def]
    run = [
        "run",
        "vectorization",
        "--agent",
        "reference",
        "--sandbox",
        engine,
        "--out",
        tmp_path / "run",
        "--json",
    ]
    result = json.loads(cli_process(*run, timeout=200).stdout)
    assert (result["valid"], result["ending"]) == (True, "submitted"), result["note"]


def test_the_engine_does_not_get_the_api_keys_of_the_harness(
    run: ScriptRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "s3cret" + run.marker
    monkeypatch.setenv("SOME_API_KEY", secret)
    process = run.sandbox.start(["sleep", "60"], run.spec)
    try:
        assert find_marked_pids(secret) in ([], [str(os.getpid())])
    finally:
        process.close()


def test_a_missing_image_is_a_usage_error(engine: str, spec: SandboxSpec) -> None:
    with pytest.raises(UsageError, match=f"{engine} pull localhost/no-such"):
        create_sandbox(f"{engine}:localhost/no-such").run(["true"], spec, 9, CommandOutput())
