"""Measures the cost of the access log, and of two other methods to record accesses; medians, interleaved.

    python benchmarks/access_log.py [--times N] [--alternatives] [--json]

Three scripts: one that only opens files, one that only imports, and a training script with the same
imports. Exits with 1 if the last one takes over 10 % longer. The alternatives (strace; fanotify, as root
only) watch the same script outside the sandbox, and are compared with the plain script there.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlagentbench.preparation.prepare import prepare_data
from mlagentbench.records import Limits
from mlagentbench.runtimes.base import PYTHON_NAME, Runtime, ensure_runtime
from mlagentbench.sandbox.access_log.recording import AccessLog
from mlagentbench.sandbox.access_log.records import read_access
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.selection import choose_unprivileged_uid, create_sandbox
from mlagentbench.task import Task

MAX_RELATIVE_COST = 0.1
IMPORTS = "import pandas, sklearn.ensemble, scipy.stats, torch\n"
TRACED_CALLS = "open,openat,openat2,creat,truncate,execve,execveat,connect,bind,sendto,sendmsg,sendmmsg"
FAN_OPEN, FAN_OPEN_EXEC, FAN_CLOSE_WRITE, FAN_ADD_FILESYSTEM = 0x20, 0x1000, 0x8, 0x101
OPENS = "for _ in range(10_000): open('/usr/bin/env').close(); open('train.csv').close()\n"
Method = Callable[[], None]
Figures = dict[str, list[float]]


def print_progress(line: str) -> None:
    print(line, file=sys.stderr)


def create_workspace(folder: Path, script: str) -> tuple[Path, int | None]:
    """Create a house-price workspace with another script."""
    task = Task.load("house-price")
    workspace, uid = folder / "workspace", choose_unprivileged_uid("benchmark")
    shutil.copytree(prepare_data(task, "open", print_progress).public, workspace)
    (workspace / "script.py").write_text(script)
    if uid:
        for path in (workspace, *workspace.rglob("*")):
            os.chown(path, uid, uid)
    return workspace, uid


def run_sandboxed(workspace: Path, uid: int | None, runtime: Runtime, access_log: AccessLog | None) -> Method:
    spec = SandboxSpec(workspace, runtime, Limits(), uid=uid, access_log=access_log)

    def run() -> None:
        with CommandOutput() as output:
            done = create_sandbox("bwrap").run(["python", "script.py"], spec, 300, output)
        assert done.exit_code == 0, output.text
        if access_log:
            access_log.write_step(1)

    return run


def run_bare(workspace: Path, runtime: Runtime, *before: str) -> Method:
    python = str(runtime.prefix / "bin" / PYTHON_NAME)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(runtime.packages), "PYTHONDONTWRITEBYTECODE": "1"}

    def run() -> None:
        command = [*before, python, "script.py"]
        subprocess.run(command, cwd=workspace, env=env, check=True, stdout=subprocess.DEVNULL)

    return run


LISTENER = f"""
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.fanotify_init(0, os.O_RDONLY | os.O_CLOEXEC)
for path in sys.argv[1:]:
    mask = ctypes.c_uint64({FAN_OPEN | FAN_OPEN_EXEC | FAN_CLOSE_WRITE})
    if libc.fanotify_mark(fd, {FAN_ADD_FILESYSTEM}, mask, -100, path.encode()):
        sys.exit(os.strerror(ctypes.get_errno()))
print("ready", flush=True)
counts = {{}}
while data := os.read(fd, 1 << 16):
    while data:
        length, _, _, _, mask, file, pid = struct.unpack_from("=IBBHQii", data)
        data = data[length:]
        path = os.readlink(f"/proc/self/fd/{{file}}")
        os.close(file)
        counts[path, mask] = counts.get((path, mask), 0) + 1
"""


@contextmanager
def fanotify(paths: list[Path]) -> Iterator[None]:
    """Record everything that is opened on the file systems of these paths."""
    listener = subprocess.Popen([sys.executable, "-c", LISTENER, *map(str, paths)], stdout=subprocess.PIPE)
    assert listener.stdout is not None
    assert listener.stdout.readline() == b"ready\n", "fanotify needs root"
    try:
        yield
    finally:
        listener.kill()
        listener.wait()
        listener.stdout.close()


def with_fanotify(method: Method, paths: list[Path]) -> Method:
    def run() -> None:
        with fanotify(paths):
            method()

    return run


def time_methods(methods: dict[str, Method], times: int) -> Figures:
    """Seconds of each method, interleaved so that a busy moment affects all of them."""
    seconds: Figures = {name: [] for name in methods}
    for turn in range(times + 1):
        for name, method in methods.items():
            started = time.perf_counter()
            method()
            if turn:  # the first one warms the disk cache
                seconds[name].append(time.perf_counter() - started)
    return seconds


def relative_costs(figures: Figures) -> dict[str, float]:
    """How much longer each method takes than the one it is compared with."""
    medians = {name: statistics.median(seconds) for name, seconds in figures.items()}
    return {
        name: medians[name] / medians[name.partition(" with ")[0]] - 1 for name in medians if " with " in name
    }


def measure(script: str, times: int, alternatives: bool) -> dict[str, Any]:
    runtime = ensure_runtime("torch", print_progress)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        workspace, uid = create_workspace(Path(folder), script)
        access_log = AccessLog(Path(folder))
        methods = {
            "sandbox": run_sandboxed(workspace, uid, runtime, None),
            "sandbox with access log": run_sandboxed(workspace, uid, runtime, access_log),
        }
        if alternatives:
            plain = run_bare(workspace, runtime)
            methods["bare"] = plain
            if shutil.which("strace"):
                filters = ("-f", "--seccomp-bpf", "-qq", "-e", f"trace={TRACED_CALLS}")
                tracer = ("strace", *filters, "-o", f"{folder}/strace")
                methods["bare with strace"] = run_bare(workspace, runtime, *tracer)
            if os.geteuid() == 0:
                methods["bare with fanotify"] = with_fanotify(
                    plain, [workspace, runtime.folder, runtime.prefix, Path("/usr")]
                )
        seconds = time_methods(methods, times)
        recorded = sum(access.count for access in read_access(Path(folder), 1))
        access_log.close()
        create_sandbox("bwrap").release_workspace(SandboxSpec(workspace, runtime))
    return {"recorded calls": recorded, "seconds": seconds, "cost": relative_costs(seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--alternatives", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    starter = (Task.load("house-price").folder / "starter" / "train.py").read_text()
    scripts = {"20,000 opens": OPENS, "imports": IMPORTS, "imports and training": IMPORTS + starter}
    results = {name: measure(script, args.times, args.alternatives) for name, script in scripts.items()}
    if args.json:
        print(json.dumps(results, indent=2))
    else:
        print_table(results)
    sys.exit(results["imports and training"]["cost"]["sandbox with access log"] > MAX_RELATIVE_COST)


def print_table(results: dict[str, Any]) -> None:
    for script, figures in results.items():
        print(f"{script}: {figures['recorded calls']} recorded calls")
        for method, seconds in figures["seconds"].items():
            cost = figures["cost"].get(method)
            shown = "" if cost is None else f"{cost:+.1%}"
            spread = f"({min(seconds):.2f} to {max(seconds):.2f})"
            print(f"  {method:<24} {statistics.median(seconds):6.2f} s {spread}   {shown}")


if __name__ == "__main__":
    main()
