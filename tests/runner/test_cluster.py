"""A batch on a Ray cluster of three nodes: lost nodes, lost drivers, stops; no result is lost, none is made twice.

The nodes are processes of this machine, each with a /dev of its own in which two GPUs are pretended; the head declares
none of them. They do not see the folder of whoever starts a batch.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mlagentbench
from mlagentbench.records import Result
from mlagentbench.runner.batch.batch_status import BatchFollower
from mlagentbench.runner.folder import RunFolder

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need mounts of their own"),
]
Until = Callable[[Callable[[], object]], None]

HEAD, *OTHERS = "127.0.0.2", "127.0.0.3", "127.0.0.4"  # Ray takes 127.0.0.1 for another address
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
# A node that is gone is missed after seconds, and nothing is started that nobody asked for.
QUICK = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_gcs_rpc_server_connect_timeout_s": "60",
    "RAY_raylet_start_wait_time_s": "90",
}

NODE = """
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
dev="$1/dev"; mkdir "$dev" "$dev/shm" "$dev/pts"
for name in null zero full random urandom tty; do touch "$dev/$name"; mount --bind "/dev/$name" "$dev/$name"; done
for number in 0 1; do touch "$dev/nvidia$number"; mount --bind /dev/null "$dev/nvidia$number"; done
for name in shm pts; do mount --bind "/dev/$name" "$dev/$name"; done
ln -s /proc/self/fd "$dev/fd"
mount --rbind "$dev" /dev
shift
exec "$@"
"""
PATIENT = """
from pathlib import Path
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call

class Patient(Agent):
    def run(self, env):
        code = "import time\\nprint('waiting', flush=True)\\ntime.sleep({seconds})"
        env.step(Call(action="Write File", args={{"file_name": "{name}.py", "content": code}}))
        script = "train.py" if Path({go!r}).exists() else "{name}.py"
        env.step(Call(action="Execute Script", args={{"script_name": script}}))
        env.step(Call(action="Execute Script", args={{"script_name": "train.py"}}))
        env.step(Call(action="Final Answer", args={{"final_answer": "done"}}))
"""
SPY = """
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call

SCRIPT = '''{script}'''

class Spy(Agent):
    def run(self, env):
        env.step(Call(action="Write File", args={{"file_name": "spy.py", "content": SCRIPT}}))
        env.step(Call(action="Execute Script", args={{"script_name": "spy.py"}}))
"""
LOOK_AROUND = """
import os, socket
from pathlib import Path
print("variables:", sorted(name for name in os.environ if "RAY" in name.upper()))
print("devices:", sorted(path.name for path in Path("/dev").glob("nvidia*")))
print("files:", sorted(map(str, Path("/tmp").iterdir())), Path({session!r}).exists())
print("segments:", sorted(map(str, Path("/dev/shm").iterdir())))
for kind, address in {doors!r}:
    with socket.socket(kind) as door:
        door.settimeout(2)
        try:
            door.connect(tuple(address) if isinstance(address, list) else address)
            print("OPEN", address)
        except OSError:
            print("shut")
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HEAD, 0))
        return int(probe.getsockname()[1])


def words_of(pid: int | str) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def parent_of(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def all_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def running(script: str) -> list[int]:
    """The processes of a script, inside whatever sandbox."""
    return [pid for pid in all_pids() if f"./{script}.py" in words_of(pid)]


class Nodes:
    """Three nodes; the first is the head."""

    def __init__(self, hidden: Path) -> None:
        self.hidden = hidden
        self.session = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # sockets have short names
        self.address = f"{HEAD}:{free_port()}"
        self._started: dict[str, subprocess.Popen[str]] = {}

    def start(self, ip: str) -> None:
        port = self.address.partition(":")[2]
        role = ["--head", f"--port={port}", "--include-dashboard=false"]
        role = role if ip == HEAD else [f"--address={self.address}"]
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", *role, f"--node-ip-address={ip}"]
        ray += [
            "--num-cpus=2",
            f"--num-gpus={0 if ip == HEAD else 2}",
            "--object-store-memory=100000000",
            "--disable-usage-stats",
        ]
        ray += [f"--temp-dir={self.session}", "--include-log-monitor=false", "--block"]
        ray += [f"--dashboard-agent-listen-port={free_port()}"]
        env = {**os.environ, **TOKEN, **QUICK, "PYTHONPATH": str(Path(mlagentbench.__file__).parents[1])}
        command = ["unshare", "-m", "sh", "-c", NODE, "sh", str(self.hidden), *ray]
        with (self.session / f"{ip}.txt").open("w") as log:
            self._started[ip] = subprocess.Popen(
                command, stdout=log, stderr=log, env=env, start_new_session=True
            )

    def joined(self, ip: str) -> bool:
        said = (self.session / f"{ip}.txt").read_text()
        assert self._started[ip].poll() is None, said
        return "--block" in said  # what it says last

    def raylet(self, ip: str) -> int | None:
        mark = f"--node_ip_address={ip}"
        found = [
            pid for pid in all_pids() if mark in (words := words_of(pid)) and "raylet" in Path(words[0]).name
        ]
        ours = [pid for pid in found if str(self.session) in " ".join(words_of(pid))]
        return ours[0] if ours else None

    def members(self, ip: str) -> list[int]:
        """The processes of a node, which are Ray's; what these have started is not among them."""
        raylet = self.raylet(ip)
        own = [raylet, *(pid for pid in all_pids() if parent_of(pid) == raylet)] if raylet else []
        return [self._started[ip].pid, *own]

    def node_of(self, pid: int) -> str:
        """The node to which a process of a run belongs."""
        raylets = {self.raylet(ip): ip for ip in self._started}
        while pid > 1:
            if pid in raylets:
                return raylets[pid]
            pid = parent_of(pid)
        return ""

    def send(self, ip: str, number: int) -> None:
        for pid in self.members(ip):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, ip: str) -> None:
        self.send(ip, signal.SIGKILL)
        self._started.pop(ip).wait()

    def close(self) -> None:
        for ip in list(self._started)[::-1]:
            self.kill(ip)
        shutil.rmtree(self.session, ignore_errors=True)


@pytest.fixture(scope="module")
def until() -> Until:
    """Like the usual one, but a cluster takes its time on a busy machine."""

    def look(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 90
        while not condition():
            assert time.monotonic() < deadline
            threading.Event().wait(0.1)  # whoever looks all the time takes it from the nodes

    return look


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, until: Until) -> Iterator[Nodes]:
    """Up and running."""
    started = Nodes(tmp_path_factory.mktemp("driver"))
    try:
        for ip in (HEAD, *OTHERS):  # one after another: two at once may choose the same ports
            started.start(ip)
            until(partial(started.joined, ip))
        yield started
    finally:
        started.close()


@pytest.fixture
def out(nodes: Nodes, tmp_path: Path) -> Path:
    """A folder for a batch that no node can see."""
    return nodes.hidden / f"out-{tmp_path.name}"


@contextmanager
def batch(nodes: Nodes, out: Path, *words: object) -> Iterator["subprocess.Popen[str]"]:
    """A batch on the cluster, in a process of its own."""
    command = [sys.executable, "-m", "mlagentbench", "batch", "--on", "ray", "--address", nodes.address]
    command += ["--out", *map(str, (out, *words)), "--json"]
    pipes: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "env": {**os.environ, **TOKEN},
    }
    with subprocess.Popen(command, text=True, **pipes) as driver:
        try:
            yield driver
        finally:
            driver.kill()


def results(driver: "subprocess.Popen[str]", code: int = 0) -> list[Result]:
    said, complaints = driver.communicate(timeout=120)
    assert driver.returncode == code, complaints
    return [Result.model_validate(each) for each in json.loads(said)]


def patient(folder: Path, name: str, go: Path, seconds: float = 1000) -> Path:
    """An agent that executes something long, unless a file is there."""
    path = folder / f"{name}.py"
    path.write_text(PATIENT.format(name=name, go=str(go), seconds=seconds))
    return path


def waiting(out: Path, driver: "subprocess.Popen[str]") -> list[str]:
    """The runs of which was brought back that they are in the middle of a script."""
    assert driver.poll() is None, "".join(driver.communicate())
    outputs = [path for path in out.glob("*/outputs/step-0002.txt") if b"waiting" in path.read_bytes()]
    return [path.parent.parent.name for path in outputs]


def states(out: Path) -> dict[str, str]:
    return {each.name: each.state for each in BatchFollower(out).refresh().runs}


def essence(folder: Path) -> tuple[object, ...]:
    """What must repeat of a run of which only times may differ."""
    run = RunFolder(folder)
    steps = [(step.number, step.call, step.failed) for step in run.steps()]
    calls = [(call.number, call.step, call.reply) for call in run.calls()]
    assert run.result
    return (
        steps,
        calls,
        run.result.replace(seconds=0, grading_seconds=0, trace="", calls="", folder="", history=""),
    )


def test_a_cluster_gives_what_one_machine_gives_and_agents_see_nothing_of_it(
    nodes: Nodes, out: Path, tmp_path: Path, toy: Path
) -> None:
    task = nodes.hidden / "travelling" / "toy"
    shutil.copytree(toy, task)
    session = next(nodes.session.glob("session_2*"))
    host, _, port = nodes.address.partition(":")
    doors: list[tuple[int, Any]] = [(socket.AF_INET, [host, int(port)])]
    doors += [(socket.AF_UNIX, str(path)) for path in (session / "sockets").iterdir()]
    script = LOOK_AROUND.format(session=str(session), doors=[(int(kind), address) for kind, address in doors])
    (nodes.hidden / "spy.py").write_text(SPY.format(script=script))
    said = ['Action: Write File\nAction Input: {"file_name": "n", "content": "x"}']
    said += ['Action: Execute Script\nAction Input: {"script_name": "train.py"}']
    said += ['Action: Final Answer\nAction Input: {"final_answer": "done"}']
    (tmp_path / "script").write_text("\n=====\n".join(said))
    words = [
        "--task",
        task,
        "--agent",
        "act",
        "--model",
        f"scripted:{tmp_path / 'script'}",
        "--repetitions",
        2,
    ]
    with batch(nodes, out, *words, "--agent", nodes.hidden / "spy.py", "--gpus-per-run", 1) as driver:
        found = results(driver)
    local = [sys.executable, "-m", "mlagentbench", "batch", "--out", tmp_path / "here", *words]
    subprocess.run([*map(str, local)], check=True, capture_output=True)
    agents = [result for result in found if result.agent == "act"]
    assert len(found) == 4 and [result.seed for result in agents] == [0, 1]
    for result in agents:
        assert result.score == 5.0
        assert essence(Path(result.folder)) == essence(tmp_path / "here" / Path(result.folder).name)
    for result in found:
        spec = RunFolder(Path(result.folder)).spec
        assert spec.task == str(task) and spec.gpu in ("0", "1")
        if result.agent == "spy.py":
            seen = RunFolder(Path(result.folder)).steps()[1].observation
            assert f"devices: ['nvidia{spec.gpu}']" in seen and "variables: []" in seen, seen
            assert "files: [] False" in seen and "segments: []" in seen, seen
            assert "OPEN" not in seen and seen.count("shut") == len(doors) > 3, seen


def test_a_lost_node_loses_no_run_counts_none_twice_and_leaves_no_sandbox(
    nodes: Nodes, out: Path, tmp_path: Path, toy: Path, until: Until
) -> None:
    go = tmp_path / "go"
    agent = patient(nodes.hidden, "lost", go, seconds=12)
    with batch(nodes, out, "--task", toy, "--agent", agent, "--repetitions", 4, "--jobs", 4) as driver:
        until(lambda: len(waiting(out, driver)) == 4)
        assert set(states(out).values()) == {"running"}
        began = {path.parent.name: path.read_bytes() for path in out.glob("*/run.json")}
        homes = {pid: nodes.node_of(pid) for pid in running("lost")}
        victim = max(OTHERS, key=list(homes.values()).count)
        doomed = [pid for pid, home in homes.items() if home == victim]
        assert doomed and len(doomed) < len(homes)
        go.touch()
        nodes.kill(victim)
        until(lambda: not set(doomed) & set(running("lost")))
        found = results(driver)
    nodes.start(victim)
    until(lambda: nodes.joined(victim))
    assert len(found) == 4 and len({result.folder for result in found}) == 4
    assert {result.ending for result in found} == {"submitted"} and {result.steps for result in found} == {4}
    assert {path.parent.name: path.read_bytes() for path in out.glob("*/run.json")} == began, (
        "resumed, not begun anew"
    )
    assert not list(out.glob("*/result-*.json")), "a lost node is no fault"
    second = [RunFolder(Path(result.folder)).steps()[1].call.args["script_name"] for result in found]
    assert second.count("train.py") > 0 and second.count("lost.py") > 0, second
    assert not running("lost") and not list(out.glob("**/*.part"))


@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_nothing_running_and_the_same_command_goes_on(
    nodes: Nodes, out: Path, tmp_path: Path, toy: Path, until: Until
) -> None:
    go = tmp_path / "go"
    words = ["--task", toy, "--agent", patient(nodes.hidden, "orphan", go), "--repetitions", 2]
    with batch(nodes, out, *words) as driver:
        until(lambda: len(waiting(out, driver)) == 2)
        driver.kill()
        driver.communicate()
    until(lambda: not running("orphan"))
    assert set(states(out).values()) == {"stopped"}
    began = {path: path.read_bytes() for path in out.glob("*/run.json")}
    go.touch()
    with batch(nodes, out, *words) as driver:
        found = results(driver)
    assert [(result.ending, result.steps) for result in found] == [("submitted", 4)] * 2
    assert {path: path.read_bytes() for path in out.glob("*/run.json")} == began


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
def test_stop_reaches_runs_on_other_nodes(
    nodes: Nodes, out: Path, tmp_path: Path, toy: Path, until: Until, shared: bool, cli: Callable[..., Any]
) -> None:
    out = tmp_path / "out" if shared else out
    go, name = tmp_path / "go", f"stopped{shared:d}"
    words = ["--task", toy, "--agent", patient(nodes.hidden, name, go), "--repetitions", 2]
    words += ["--shared"] if shared else []
    with batch(nodes, out, *words) as driver:
        until(lambda: len(waiting(out, driver)) == 2)
        one = waiting(out, driver)[0]
        assert cli("stop", out / one).stdout == f"stopped: {out / one}\n"
        assert states(out)[one] == "stopped" and list(states(out).values()).count("running") == 1
        driver.terminate()
        assert not results(driver, 130)
    until(lambda: not running(name))
    assert set(states(out).values()) == {"stopped"}
    go.touch()
    with batch(nodes, out, *words) as driver:
        assert [result.steps for result in results(driver)] == [4, 4]


@pytest.mark.slow
def test_a_node_that_was_cut_off_and_comes_back_writes_over_nothing(
    nodes: Nodes, out: Path, tmp_path: Path, toy: Path, until: Until
) -> None:
    go = tmp_path / "go"
    words = [
        "--task",
        toy,
        "--agent",
        patient(nodes.hidden, "frozen", go),
        "--gpus-per-run",
        1,
    ]  # so not on the head
    with batch(nodes, out, *words) as driver:
        until(lambda: len(waiting(out, driver)) == 1)
        victim = nodes.node_of(running("frozen")[0])
        go.touch()
        nodes.send(victim, signal.SIGSTOP)
        try:
            (found,) = results(driver)
            assert running("frozen"), "the old try is still there"
        finally:
            nodes.send(victim, signal.SIGCONT)
    until(lambda: not running("frozen") and nodes.raylet(victim) is None)
    again = RunFolder(Path(found.folder))
    assert (found.ending, found.steps) == ("submitted", 4)
    assert again.result == found and len(again.steps()) == 4
    nodes.kill(victim)
    nodes.start(victim)
    until(lambda: nodes.joined(victim))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--on", "mars"], "there is no 'mars' to run on; there are: here, ray"),
        (["--address", "auto"], "are for --on ray"),
        (["--on", "ray", "--gpu", "0"], "pass --gpus-per-run instead of --gpu"),
        (["--on", "ray", "--cpus-per-run", "0"], "cpus: input should be greater than 0"),
        (["--on", "ray", "--address", "ray://127.0.0.1:10001"], "Start the batch on a node of the cluster"),
        (["--on", "ray", "--address", "nowhere"], "No Ray cluster at nowhere"),
        (["--on", "ray", "--address", "127.0.0.1:1"], "No Ray cluster at 127.0.0.1:1: [Errno 111]"),
    ],
)
def test_what_a_person_gets_wrong_is_one_line(
    cli: Callable[..., Any], tmp_path: Path, toy: Path, words: list[str], sentence: str
) -> None:
    refused = cli("batch", "--task", toy, "--agent", "nothing", "--out", tmp_path / "out", *words)
    assert refused.returncode == 2 and sentence in refused.stderr, refused.stderr
    assert refused.stderr.count("\n") == 1, refused.stderr
