"""What the access ledger costs, beside two other ways of keeping one; medians, taken in turns.

    python benchmarks/access.py [--times N] [--alternatives] [--json]

Three scripts: one that does nothing but open files, one that does nothing but import, and a training script with the
same imports. Exits with 1 if the last takes over a tenth longer. The alternatives (a tracer: strace; fanotify: as root
only) watch the same script outside the sandbox, and are held against the bare script there.
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

LIMIT = 0.1
IMPORTS = "import pandas, sklearn.ensemble, scipy.stats, torch\n"
CALLS = "open,openat,openat2,creat,truncate,execve,execveat,connect,bind,sendto,sendmsg,sendmmsg"
FAN_OPEN, FAN_OPEN_EXEC, FAN_CLOSE_WRITE, FAN_ADD_FILESYSTEM = 0x20, 0x1000, 0x8, 0x101
OPENS = "for _ in range(10_000): open('/usr/bin/env').close(); open('train.csv').close()\n"
Way = Callable[[], None]
Figures = dict[str, list[float]]


def say(line: str) -> None:
    print(line, file=sys.stderr)


def workspace(folder: Path, script: str) -> tuple[Path, int | None]:
    """A house-price workspace with another script in it."""
    task = Task.load("house-price")
    place, owner = folder / "workspace", choose_unprivileged_uid("benchmark")
    shutil.copytree(prepare_data(task, "open", say).public, place)
    (place / "script.py").write_text(script)
    if owner:
        for path in (place, *place.rglob("*")):
            os.chown(path, owner, owner)
    return place, owner


def sandboxed(place: Path, owner: int | None, runtime: Runtime, book: AccessLog | None) -> Way:
    box = SandboxSpec(place, runtime, Limits(), uid=owner, access_log=book)

    def run() -> None:
        with CommandOutput() as output:
            done = create_sandbox("bwrap").run(["python", "script.py"], box, 300, output)
        assert done.exit_code == 0, output.text
        if book:
            book.write_step(1)

    return run


def bare(place: Path, runtime: Runtime, *before: str) -> Way:
    python = str(runtime.prefix / "bin" / PYTHON_NAME)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(runtime.packages), "PYTHONDONTWRITEBYTECODE": "1"}

    def run() -> None:
        command = [*before, python, "script.py"]
        subprocess.run(command, cwd=place, env=env, check=True, stdout=subprocess.DEVNULL)

    return run


LISTENER = f"""
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.fanotify_init(0, os.O_RDONLY | os.O_CLOEXEC)
for place in sys.argv[1:]:
    mask = ctypes.c_uint64({FAN_OPEN | FAN_OPEN_EXEC | FAN_CLOSE_WRITE})
    if libc.fanotify_mark(fd, {FAN_ADD_FILESYSTEM}, mask, -100, place.encode()):
        sys.exit(os.strerror(ctypes.get_errno()))
print("ready", flush=True)
found = {{}}
while data := os.read(fd, 1 << 16):
    while data:
        length, _, _, _, mask, file, pid = struct.unpack_from("=IBBHQii", data)
        data = data[length:]
        path = os.readlink(f"/proc/self/fd/{{file}}")
        os.close(file)
        found[path, mask] = found.get((path, mask), 0) + 1
"""


@contextmanager
def fanotify(places: list[Path]) -> Iterator[None]:
    """A listener to everything that is opened on the file systems of these places."""
    listener = subprocess.Popen([sys.executable, "-c", LISTENER, *map(str, places)], stdout=subprocess.PIPE)
    assert listener.stdout is not None
    assert listener.stdout.readline() == b"ready\n", "fanotify needs root"
    try:
        yield
    finally:
        listener.kill()
        listener.wait()
        listener.stdout.close()


def listened(way: Way, places: list[Path]) -> Way:
    def run() -> None:
        with fanotify(places):
            way()

    return run


def taken(ways: dict[str, Way], times: int) -> Figures:
    """Seconds for each way; in turns, so that a busy moment hits all alike."""
    found: Figures = {name: [] for name in ways}
    for turn in range(times + 1):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            if turn:  # the first warms the disk cache
                found[name].append(time.perf_counter() - started)
    return found


def costs(figures: Figures) -> dict[str, float]:
    """How much more each way takes than the one it is held against."""
    middle = {name: statistics.median(each) for name, each in figures.items()}
    return {
        name: middle[name] / middle[name.partition(" with ")[0]] - 1 for name in middle if " with " in name
    }


def measure(script: str, times: int, alternatives: bool) -> dict[str, Any]:
    runtime = ensure_runtime("torch", say)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        place, owner = workspace(Path(folder), script)
        book = AccessLog(Path(folder))
        ways = {
            "sandbox": sandboxed(place, owner, runtime, None),
            "sandbox with ledger": sandboxed(place, owner, runtime, book),
        }
        if alternatives:
            alone = bare(place, runtime)
            ways["bare"] = alone
            if shutil.which("strace"):
                tracer = (
                    "strace",
                    "-f",
                    "--seccomp-bpf",
                    "-qq",
                    "-e",
                    f"trace={CALLS}",
                    "-o",
                    f"{folder}/strace",
                )
                ways["bare with strace"] = bare(place, runtime, *tracer)
            if os.geteuid() == 0:
                ways["bare with fanotify"] = listened(
                    alone, [place, runtime.folder, runtime.prefix, Path("/usr")]
                )
        seconds = taken(ways, times)
        told = sum(access.count for access in read_access(Path(folder), 1))
        book.close()
        create_sandbox("bwrap").release_workspace(SandboxSpec(place, runtime))
    return {"calls told": told, "seconds": seconds, "cost": costs(seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--alternatives", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    starter = (Task.load("house-price").folder / "starter" / "train.py").read_text()
    scripts = {"20,000 opens": OPENS, "imports": IMPORTS, "imports and training": IMPORTS + starter}
    found = {name: measure(script, given.times, given.alternatives) for name, script in scripts.items()}
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)
    sys.exit(found["imports and training"]["cost"]["sandbox with ledger"] > LIMIT)


def show(found: dict[str, Any]) -> None:
    for script, figures in found.items():
        print(f"{script}: {figures['calls told']} calls told")
        for way, each in figures["seconds"].items():
            cost = figures["cost"].get(way)
            shown = "" if cost is None else f"{cost:+.1%}"
            print(
                f"  {way:<22} {statistics.median(each):6.2f} s ({min(each):.2f} to {max(each):.2f})   {shown}"
            )


if __name__ == "__main__":
    main()
