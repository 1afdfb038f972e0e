"""The promises of the sandbox, kept by a container engine: the very tests of bubblewrap, in containers."""

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
import test_ending
import test_limits
import test_repl
import test_user
import test_work
from conftest import Runner, _checked, marked
from test_repl import repl, run_code  # noqa: F401 - fixtures

from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.selection import create_sandbox
from mlagentbench.system.cache import cache_dir

# Each is collected here once more, and takes the sandbox of this module.
REUSED = [
    test_bwrap.test_there_is_no_network,
    test_bwrap.test_read_only_files_hold_against_everything,
    test_bwrap.test_the_record_of_the_output_is_out_of_reach,
    test_bwrap.test_ipc_of_the_host_is_another_and_that_of_a_script_goes_with_it,
    test_bwrap.test_a_root_harness_never_starts_a_box_without_an_unprivileged_owner,
    test_bwrap.test_a_missing_python_is_a_fault_and_no_failure_of_the_script,
    test_ending.test_a_script_that,
    test_ending.test_a_daemon_left_behind_by_a_script_that_ends_well_is_ended_with_it,
    test_ending.test_the_exit_code_is_the_scripts_own,
    test_ending.test_killing_everything_from_inside_kills_only_what_is_inside,
    test_limits.test_memory_ends_at_its_limit_when_eaten_by,
    test_limits.test_file_systems_in_memory_are_small_and_the_script_hears_of_it,
    test_limits.test_a_fork_bomb_is_over_in_seconds,
    test_limits.test_the_disk_ends_at_its_limit_when_filled_with,
    test_limits.test_one_big_file_ends_at_the_limit_with_an_error_of_its_own,
    test_limits.test_a_flood_of_output_stays_on_disk_up_to_a_cap,
    test_repl.test_variables_are_kept_and_the_last_value_is_shown,
    test_repl.test_an_error_is_shown_and_the_interpreter_goes_on,
    test_repl.test_an_endless_loop_ends_at_the_limit_and_a_new_interpreter_begins,
    test_repl.test_nothing_moves_between_two_commands,
    test_repl.test_a_flood_is_cut_and_the_interpreter_goes_on,
    test_work.test_tables_models_and_processes_work,
    test_work.test_asyncio_shared_memory_and_loopback_servers_work,
    test_work.test_a_package_of_the_workspace_does_not_hide_the_sandboxs_own_start,
]
globals().update({test.__name__: test for test in REUSED})


# Its own memory is its own, what opens a map may still not write it, and what is masked is empty.
HARMLESS = ("/proc/self/mem ", "/proc/self/uid_map ", "/proc/timer_list DONE b''")


def _obstacle(engine: str, folder: Path) -> str:
    """Why there can be no containers here; a machine on which crun cannot work may have runc."""
    if not shutil.which(engine):
        return f"there is no {engine} here"
    tried = _tried(engine)
    if tried and engine == "podman":
        config = folder / "containers.conf"
        config.write_text('[engine]\nruntime = "runc"\n')
        os.environ["CONTAINERS_CONF"] = str(config)
        tried = _tried(engine)
    return tried


def _tried(engine: str) -> str:
    try:
        source = create_sandbox(engine)._image_arguments  # type: ignore[attr-defined]
    except SandboxFault as fault:
        return str(fault)
    limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
    tried = [
        engine,
        "run",
        "--rm",
        "--network",
        "none",
        *limits,
        "--volume",
        "/usr:/usr:ro",
        *source,
        "/bin/true",
    ]
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    return f"{engine} cannot work here: {done.stderr.strip()[:200]}" if done.returncode else ""


@pytest.fixture(scope="session", params=["podman", "docker"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Each engine that works on this machine."""
    if why := _obstacle(request.param, tmp_path_factory.mktemp("engine")):
        pytest.skip(why)
    name: str = request.param
    return name


@pytest.fixture
def run(engine: str, box: SandboxSpec) -> Iterator[Runner]:
    """A script in a container; afterwards nothing may be left, whatever it did."""
    yield from _checked(Runner(create_sandbox(engine), box, box.workspace.parent))
    left = subprocess.run([engine, "ps", "--all", "--quiet"], capture_output=True, text=True, check=True)
    assert left.stdout == ""


pytestmark = pytest.mark.slow


def test_no_privilege_can_be_gained_in_a_container(run: Runner) -> None:
    gained = test_bwrap.done(test_bwrap.probe(run, test_bwrap.GAINS))
    assert [line for line in gained if not line.startswith(HARMLESS)] == []


def test_what_a_script_may_take_from_the_machine_is_bounded_in_a_container(run: Runner) -> None:
    done, numbers = test_limits.taken(run)
    assert done in (
        [],
        ["did 5"],
    )  # the latter is how eager the kernel is to kill it, which not every root can fix
    assert numbers["CORE"] <= 1 and numbers["NOFILE"] <= 4096
    assert numbers["RTPRIO"] == numbers["NICE"] == 0


def test_a_script_that_asks_to_be_spared_ends_at_its_memory_limit_all_the_same(run: Runner) -> None:
    spared = "try: open('/proc/self/oom_score_adj', 'w').write('-1000')\nexcept OSError: pass\n"
    ran = run(spared + test_limits.EATERS["one process"])
    assert ran.limit == "memory" and "begun" in ran.text


def test_the_harness_and_its_files_are_not_inside(run: Runner) -> None:
    (run.folder / "answers.csv").write_text("42")
    places = [
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
    places += ["/etc/shadow", "/etc/ssl", "/dev/mem", "/dev/sda", os.environ["HOME"], sys.prefix]
    places += [f"/proc/{os.getpid()}", "/proc/1/root/root", "/sys/class", "/sys/devices", "/run/sandbox/control"]
    ran = run(f"""
import os
print([place for place in {places} if os.path.lexists(place)])
print(sum(p.isdigit() for p in os.listdir('/proc')), os.listdir('/tmp'), os.listdir('/home'), sorted(os.environ))
try: import mlagentbench; print('imported')
except ImportError: print('no harness')
print(repr(open('/etc/resolv.conf').read()))
""")
    lines = ran.text.splitlines()
    assert lines[0] == "[]"
    assert lines[3] == "''"
    assert lines[1].startswith("2 [] ['agent'] ['HOME', 'LANG', ")
    assert lines[2] == "no harness"


def test_a_harness_killed_in_the_middle_takes_its_container_along(run: Runner) -> None:
    code = (
        "import os\nif os.fork() == 0: os.setsid(); os.fork()\nprint('begun', flush=True)\nwhile True: pass\n"
    )
    harness = test_ending.start_harness(run, run.sandbox.name, code)
    assert harness.stdout is not None
    assert b"begun" in harness.stdout.readline()
    assert len(marked(run.marker)) >= 2
    harness.kill()
    harness.wait()
    harness.stdout.close()
    test_ending.wait_until_gone(run.survivors)
    test_ending.start_harness(run, "bwrap", "print('swept')").communicate(timeout=30)


def test_a_frozen_interpreter_ends_with_its_harness_too(run: Runner) -> None:
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
    test_ending.wait_until_gone(run.survivors)
    test_ending.start_harness(run, "bwrap", "print('swept')").communicate(timeout=30)


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
def test_podman_needs_no_root(run: Runner) -> None:
    """An ordinary user, who has numbers to give away, gets a container in which he is himself."""
    if run.sandbox.name != "podman":
        pytest.skip("of docker, only its daemon decides who it is")
    user, home = test_user.USER, run.folder / "home"
    config = home / ".config" / "containers" / "containers.conf"
    config.parent.mkdir(parents=True)
    config.write_text('[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\n')
    (run.folder / "passwd").write_text(
        f"{Path('/etc/passwd').read_text()}boxer:x:{user}:{user}::{home}:/bin/sh\n"
    )
    (run.folder / "numbers").write_text("boxer:200000:65536\n")
    subprocess.run(["chown", "-R", str(user), str(home)], check=True)
    files = {"passwd": "passwd", "subuid": "numbers", "subgid": "numbers"}
    before = " && ".join(f"mount --bind {run.folder}/{name} /etc/{place}" for place, name in files.items())
    found = test_user.as_user(run, ROOTLESS, isolation="podman", before=before)
    text = str(found["text"])
    assert (found["exit_code"], found["limit"]) == (0, None), text
    assert text.startswith(f"{user} [") and "['lo']" in text and "wrote" not in text
    assert (run.workspace / "mine").stat().st_uid == user
    endless = test_user.as_user(run, "print('begun', flush=True)\nwhile True: pass", 1.5, "podman", before)
    assert endless["limit"] == "time" and "begun" in str(endless["text"])
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
def test_a_root_file_system_of_debootstrap_serves_as_an_image(
    how: str, root_file_system: Path, run: Runner
) -> None:
    engine, name = run.sandbox.name, "localhost/mlagentbench-test-debian:latest"
    if how == "image":
        with subprocess.Popen(["tar", "-C", str(root_file_system), "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run([engine, "import", "-", name], stdin=tar.stdout, check=True, capture_output=True)
        run.sandbox = create_sandbox(f"{engine}:{name}")
    elif engine == "podman":
        run.sandbox = create_sandbox(f"podman:{root_file_system}")
    else:
        pytest.skip("docker takes no folder as a root")
    ran = run("""
import os, numpy, sqlite3, ssl
print(open('/etc/debian_version').read().split('.')[0], os.path.exists('/usr/bin/debconf'), numpy.arange(3).sum())
for name in ('/etc/x', '/usr/x', '/opt/runtime/x', '/var/x'):
    try: open(name, 'w')
    except OSError: continue
    print('wrote', name)
open('mine', 'w').write('x')
""")
    assert (ran.exit_code, ran.text.strip()) == (0, "12 True 3"), ran.text
    assert (run.workspace / "mine").read_text() == "x"
    assert not (root_file_system / "workspace").exists()  # nothing of ours is left in it
    if how == "image":
        subprocess.run([engine, "rmi", "--force", name], check=True, capture_output=True)


def test_a_whole_run_in_containers_is_graded_as_any_other(
    engine: str, toy: Path, tmp_path: Path, cli
) -> None:  # type: ignore[no-untyped-def]
    done = cli("run", toy, "--agent", "reference", "--sandbox", engine, "--out", tmp_path / "run", "--json")
    result = json.loads(done.stdout)
    assert (result["score"], result["success"], result["unsandboxed"]) == (0.0, True, False), done.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["sandbox"] == engine


def test_code_that_was_submitted_is_timed_in_containers_too(engine: str, tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
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
    result = json.loads(cli(*run, timeout=200).stdout)
    assert (result["valid"], result["ending"]) == (True, "submitted"), result["note"]


def test_no_key_of_the_harness_is_known_to_the_engine(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "s3cret" + run.marker
    monkeypatch.setenv("SOME_API_KEY", secret)
    process = run.sandbox.start(["sleep", "60"], run.box)
    try:
        assert marked(secret) in ([], [str(os.getpid())])
    finally:
        process.close()


def test_an_image_that_is_not_there_is_a_sentence(engine: str, box: SandboxSpec) -> None:
    with pytest.raises(UsageError, match=f"{engine} pull localhost/no-such"):
        create_sandbox(f"{engine}:localhost/no-such").run(["true"], box, 9, CommandOutput())
