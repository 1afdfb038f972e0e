"""Batches on a Ray cluster of three nodes: lost nodes, killed drivers and stops lose or repeat no result.

The nodes are processes of this machine. Each has a /dev of its own with two fake GPUs; the head
declares none of them. They do not see the folder of the process that starts the batch.
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

HEAD, *OTHERS = "127.0.0.2", "127.0.0.3", "127.0.0.4"  # Ray replaces 127.0.0.1 by the machine's outer address
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
# A lost node is noticed within seconds, and no worker processes are started in advance.
FAST_CHECKS = {
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
for name in null zero full random urandom tty; do
    touch "$dev/$name"; mount --bind "/dev/$name" "$dev/$name"
done
for number in 0 1; do touch "$dev/nvidia$number"; mount --bind /dev/null "$dev/nvidia$number"; done
for name in shm pts; do mount --bind "/dev/$name" "$dev/$name"; done
ln -s /proc/self/fd "$dev/fd"
mount --rbind "$dev" /dev
shift
exec "$@"
"""
WAITING_AGENT = """
from pathlib import Path
from mlagentbench.agents.base import Agent
from mlagentbench.records import Call

class Waiting(Agent):
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
SPY_SCRIPT = """
import os, socket
from pathlib import Path
print("variables:", sorted(name for name in os.environ if "RAY" in name.upper()))
print("devices:", sorted(path.name for path in Path("/dev").glob("nvidia*")))
print("files:", sorted(map(str, Path("/tmp").iterdir())), Path({session!r}).exists())
print("segments:", sorted(map(str, Path("/dev/shm").iterdir())))
for kind, address in {endpoints!r}:
    with socket.socket(kind) as endpoint:
        endpoint.settimeout(2)
        try:
            endpoint.connect(tuple(address) if isinstance(address, list) else address)
            print("OPEN", address)
        except OSError:
            print("closed")
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HEAD, 0))
        return int(probe.getsockname()[1])


def command_line(pid: int | str) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def parent_pid(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def all_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def script_pids(script: str) -> list[int]:
    """The processes that execute a script, in any sandbox."""
    return [pid for pid in all_pids() if f"./{script}.py" in command_line(pid)]


class Nodes:
    """Three nodes; the first is the head."""

    def __init__(self, hidden: Path) -> None:
        self.hidden = hidden
        self.session = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # paths of sockets must be short
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
        env = {
            **os.environ,
            **TOKEN,
            **FAST_CHECKS,
            "PYTHONPATH": str(Path(mlagentbench.__file__).parents[1]),
        }
        command = ["unshare", "-m", "sh", "-c", NODE, "sh", str(self.hidden), *ray]
        with (self.session / f"{ip}.txt").open("w") as log:
            self._started[ip] = subprocess.Popen(
                command, stdout=log, stderr=log, env=env, start_new_session=True
            )

    def joined(self, ip: str) -> bool:
        output = (self.session / f"{ip}.txt").read_text()
        assert self._started[ip].poll() is None, output
        return "--block" in output  # the last line of its output

    def raylet(self, ip: str) -> int | None:
        mark = f"--node_ip_address={ip}"
        candidates = [
            pid
            for pid in all_pids()
            if mark in (words := command_line(pid)) and "raylet" in Path(words[0]).name
        ]
        ours = [pid for pid in candidates if str(self.session) in " ".join(command_line(pid))]
        return ours[0] if ours else None

    def members(self, ip: str) -> list[int]:
        """The processes of Ray on a node, without those that they have started."""
        raylet = self.raylet(ip)
        own = [raylet, *(pid for pid in all_pids() if parent_pid(pid) == raylet)] if raylet else []
        return [self._started[ip].pid, *own]

    def node_of(self, pid: int) -> str:
        """The IP of the node that runs a process."""
        raylets = {self.raylet(ip): ip for ip in self._started}
        while pid > 1:
            if pid in raylets:
                return raylets[pid]
            pid = parent_pid(pid)
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
    """Like the usual `until`, with a longer timeout and less polling: a cluster is slow on a busy machine."""

    def look(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 90
        while not condition():
            assert time.monotonic() < deadline
            threading.Event().wait(0.1)  # leaves the processor to the nodes

    return look


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, until: Until) -> Iterator[Nodes]:
    """The started nodes."""
    started = Nodes(tmp_path_factory.mktemp("driver"))
    try:
        for ip in (HEAD, *OTHERS):  # one at a time: two may choose the same ports
            started.start(ip)
            until(partial(started.joined, ip))
        yield started
    finally:
        started.close()


@pytest.fixture
def out(nodes: Nodes, tmp_path: Path) -> Path:
    """A batch folder that no node can see."""
    return nodes.hidden / f"out-{tmp_path.name}"


@contextmanager
def batch(nodes: Nodes, out: Path, *words: object) -> Iterator["subprocess.Popen[str]"]:
    """A batch command on the cluster, in a process of its own."""
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
    stdout, stderr = driver.communicate(timeout=120)
    assert driver.returncode == code, stderr
    return [Result.model_validate(result) for result in json.loads(stdout)]


def waiting_agent(folder: Path, name: str, go: Path, seconds: float = 1000) -> Path:
    """Writes an agent that executes a long script, unless the file `go` exists."""
    path = folder / f"{name}.py"
    path.write_text(WAITING_AGENT.format(name=name, go=str(go), seconds=seconds))
    return path


def runs_in_slow_script(out: Path, driver: "subprocess.Popen[str]") -> list[str]:
    """The runs whose folder here shows that their second step is a script that has started."""
    assert driver.poll() is None, "".join(driver.communicate())
    outputs = [path for path in out.glob("*/outputs/step-0002.txt") if b"waiting" in path.read_bytes()]
    return [path.parent.parent.name for path in outputs]


def run_states(out: Path) -> dict[str, str]:
    return {run.name: run.state for run in BatchFollower(out).refresh().runs}


def comparable_record(folder: Path) -> tuple[object, ...]:
    """What must be the same in every run: not times, nor the prompt, which says whether there is a GPU."""
    run = RunFolder(folder)
    steps = [(step.number, step.call, step.failed) for step in run.steps()]
    calls = [
        (call.number, call.step, call.reply and call.reply.replace(input_tokens=0)) for call in run.calls()
    ]
    assert run.result and run.result.tokens
    not_compared = {"seconds": 0, "grading_seconds": 0, "tokens": 0}
    not_compared |= dict.fromkeys(("trace", "calls", "folder", "history"), "")
    return steps, calls, run.result.replace(**not_compared)


@pytest.mark.slow
def test_a_cluster_gives_the_same_results_and_agents_cannot_see_it(
    nodes: Nodes, out: Path, tmp_path: Path, toy: Path
) -> None:
    task = nodes.hidden / "travelling" / "toy"
    shutil.copytree(toy, task)
    session = next(nodes.session.glob("session_2*"))
    host, _, port = nodes.address.partition(":")
    endpoints: list[tuple[int, Any]] = [(socket.AF_INET, [host, int(port)])]
    endpoints += [(socket.AF_UNIX, str(path)) for path in (session / "sockets").iterdir()]
    script = SPY_SCRIPT.format(
        session=str(session), endpoints=[(int(kind), address) for kind, address in endpoints]
    )
    (nodes.hidden / "spy.py").write_text(SPY.format(script=script))
    replies = ['Action: Write File\nAction Input: {"file_name": "n", "content": "x"}']
    replies += ['Action: Execute Script\nAction Input: {"script_name": "train.py"}']
    replies += ['Action: Final Answer\nAction Input: {"final_answer": "done"}']
    (tmp_path / "script").write_text("\n=====\n".join(replies))
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
        all_results = results(driver)
    local = [sys.executable, "-m", "mlagentbench", "batch", "--out", tmp_path / "here", *words]
    subprocess.run([*map(str, local)], check=True, capture_output=True)
    agents = [result for result in all_results if result.agent == "act"]
    assert len(all_results) == 4 and [result.seed for result in agents] == [0, 1]
    for result in agents:
        assert result.score == 5.0
        assert comparable_record(Path(result.folder)) == comparable_record(
            tmp_path / "here" / Path(result.folder).name
        )
    for result in all_results:
        spec = RunFolder(Path(result.folder)).spec
        assert spec.task == str(task) and spec.gpu in ("0", "1")
        if result.agent == "spy.py":
            seen = RunFolder(Path(result.folder)).steps()[1].observation
            assert f"devices: ['nvidia{spec.gpu}']" in seen and "variables: []" in seen, seen
            assert "files: [] False" in seen and "segments: []" in seen, seen
            assert "OPEN" not in seen and seen.count("closed") == len(endpoints) > 3, seen


@pytest.mark.slow
def test_after_the_loss_of_a_node_no_run_is_lost_or_counted_twice_and_no_sandbox_is_left(
    nodes: Nodes, out: Path, tmp_path: Path, toy: Path, until: Until
) -> None:
    go = tmp_path / "go"
    agent = waiting_agent(nodes.hidden, "lost", go, seconds=12)
    with batch(nodes, out, "--task", toy, "--agent", agent, "--repetitions", 4, "--jobs", 4) as driver:
        until(lambda: len(runs_in_slow_script(out, driver)) == 4)
        assert set(run_states(out).values()) == {"running"}
        started = {path.parent.name: path.read_bytes() for path in out.glob("*/run.json")}
        node_by_pid = {pid: nodes.node_of(pid) for pid in script_pids("lost")}
        lost_node = max(OTHERS, key=list(node_by_pid.values()).count)
        lost_pids = [pid for pid, node in node_by_pid.items() if node == lost_node]
        assert lost_pids and len(lost_pids) < len(node_by_pid)
        go.touch()
        nodes.kill(lost_node)
        until(lambda: not set(lost_pids) & set(script_pids("lost")))
        all_results = results(driver)
    nodes.start(lost_node)
    until(lambda: nodes.joined(lost_node))
    assert len(all_results) == 4 and len({result.folder for result in all_results}) == 4
    assert {result.ending for result in all_results} == {"submitted"} and {
        result.steps for result in all_results
    } == {4}
    assert {path.parent.name: path.read_bytes() for path in out.glob("*/run.json")} == started, (
        "resumed, not started again"
    )
    assert not list(out.glob("*/result-*.json")), "a lost node is not a fault"
    second = [RunFolder(Path(result.folder)).steps()[1].call.args["script_name"] for result in all_results]
    assert second.count("train.py") > 0 and second.count("lost.py") > 0, second
    assert not script_pids("lost") and not list(out.glob("**/*.part"))


@pytest.mark.slow
def test_a_killed_driver_leaves_nothing_running_and_the_batch_can_be_resumed(
    nodes: Nodes, out: Path, tmp_path: Path, toy: Path, until: Until
) -> None:
    go = tmp_path / "go"
    words = ["--task", toy, "--agent", waiting_agent(nodes.hidden, "orphan", go), "--repetitions", 2]
    with batch(nodes, out, *words) as driver:
        until(lambda: len(runs_in_slow_script(out, driver)) == 2)
        driver.kill()
        driver.communicate()
    until(lambda: not script_pids("orphan"))
    assert set(run_states(out).values()) == {"stopped"}
    started = {path: path.read_bytes() for path in out.glob("*/run.json")}
    go.touch()
    with batch(nodes, out, *words) as driver:
        all_results = results(driver)
    assert [(result.ending, result.steps) for result in all_results] == [("submitted", 4)] * 2
    assert {path: path.read_bytes() for path in out.glob("*/run.json")} == started


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
def test_stop_reaches_runs_on_other_nodes(
    nodes: Nodes,
    out: Path,
    tmp_path: Path,
    toy: Path,
    until: Until,
    shared: bool,
    cli_process: Callable[..., Any],
) -> None:
    out = tmp_path / "out" if shared else out
    go, name = tmp_path / "go", f"stopped{shared:d}"
    words = ["--task", toy, "--agent", waiting_agent(nodes.hidden, name, go), "--repetitions", 2]
    words += ["--shared"] if shared else []
    with batch(nodes, out, *words) as driver:
        until(lambda: len(runs_in_slow_script(out, driver)) == 2)
        one = runs_in_slow_script(out, driver)[0]
        assert cli_process("stop", out / one).stdout == f"stopped: {out / one}\n"
        assert run_states(out)[one] == "stopped" and list(run_states(out).values()).count("running") == 1
        driver.terminate()
        assert not results(driver, 130)
    until(lambda: not script_pids(name))
    assert set(run_states(out).values()) == {"stopped"}
    go.touch()
    with batch(nodes, out, *words) as driver:
        assert [result.steps for result in results(driver)] == [4, 4]


@pytest.mark.slow
def test_a_node_that_lost_its_connection_and_returns_overwrites_nothing(
    nodes: Nodes, out: Path, tmp_path: Path, toy: Path, until: Until
) -> None:
    go = tmp_path / "go"
    words = [
        "--task",
        toy,
        "--agent",
        waiting_agent(nodes.hidden, "frozen", go),
        "--gpus-per-run",
        1,
    ]  # the head node has none
    with batch(nodes, out, *words) as driver:
        until(lambda: len(runs_in_slow_script(out, driver)) == 1)
        lost_node = nodes.node_of(script_pids("frozen")[0])
        go.touch()
        nodes.send(lost_node, signal.SIGSTOP)
        try:
            (result,) = results(driver)
            assert script_pids("frozen"), "the old attempt is still there"
        finally:
            nodes.send(lost_node, signal.SIGCONT)
    until(lambda: not script_pids("frozen") and nodes.raylet(lost_node) is None)
    again = RunFolder(Path(result.folder))
    assert (result.ending, result.steps) == ("submitted", 4)
    assert again.result == result and len(again.steps()) == 4
    nodes.kill(lost_node)
    nodes.start(lost_node)
    until(lambda: nodes.joined(lost_node))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--on", "mars"], "Cannot run on 'mars'. Available: local, ray."),
        (["--address", "auto"], "are for --on ray"),
        (["--on", "ray", "--gpu", "0"], "Pass --gpus-per-run instead of --gpu"),
        (["--on", "ray", "--cpus-per-run", "0"], "cpus: input should be greater than 0"),
    ],
)
def test_wrong_options_are_one_line(
    cli: Callable[..., Any], tmp_path: Path, toy: Path, arguments: list[str], message: str
) -> None:
    refused = cli("batch", "--task", toy, "--agent", "nothing", "--out", tmp_path / "out", *arguments)
    assert refused.returncode == 2 and message in refused.stderr, refused.stderr
    assert refused.stderr.count("\n") == 1, refused.stderr


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://127.0.0.1:10001", "Start the batch on a node of the cluster"),
        ("nowhere", "No Ray cluster at nowhere"),
        ("127.0.0.1:1", "No Ray cluster at 127.0.0.1:1: [Errno 111]"),
    ],
)
def test_a_wrong_address_is_one_line(
    cli_process: Callable[..., Any], tmp_path: Path, toy: Path, address: str, message: str
) -> None:
    cluster = ["--on", "ray", "--address", address]
    refused = cli_process("batch", "--task", toy, "--agent", "nothing", "--out", tmp_path / "out", *cluster)
    assert refused.returncode == 2 and message in refused.stderr, refused.stderr
    assert refused.stderr.count("\n") == 1, refused.stderr
