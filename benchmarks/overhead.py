"""What the harness itself costs: each figure beside a bare lower bound that was measured in the same run.

    python benchmarks/overhead.py [--json]

Exits with 1 if a figure is over its limit.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from mlagentbench.environment.environment import Environment
from mlagentbench.records import AgentSpec, Call, Limits
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import open_environment, populate_workspace
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.sandbox import bwrap
from mlagentbench.sandbox.launcher import shared_launcher
from mlagentbench.workspace.store import Store

TOY = Path(__file__).parents[1] / "tests" / "toy"
MB = 2**20


@dataclass
class Figure:
    what: str
    value: float
    unit: str
    limit: float
    bare: float | None = None
    bare_is: str = ""

    @property
    def good(self) -> bool:
        return self.value <= self.limit


def seconds(deed: Callable[[], object], times: int) -> float:
    """The median over some times, in seconds."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        deed()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


@contextmanager
def environment(setup: Setup, folder: Path) -> Iterator[Environment]:
    run = RunFolder.create(
        folder, setup.create_run_spec(AgentSpec(agent="benchmark"), 0, Limits(steps=100_000))
    )
    env = open_environment(setup, run)
    try:
        populate_workspace(env, setup)
        yield env
    finally:
        env.close()


def file_actions(env: Environment, folder: Path) -> Iterator[Figure]:
    """A changing action on a small workspace, early and late in a run."""
    count = 0

    def write() -> None:
        nonlocal count
        count += 1
        env.step(Call(action="Write File", args={"file_name": "note.txt", "content": f"note {count}"}))

    def write_bare() -> None:
        path = folder / "bare.part"
        path.write_text("note")
        path.rename(folder / "bare.txt")

    bare = seconds(write_bare, 200) * 1000
    write()
    early = seconds(write, 20) * 1000
    while len(env.steps) < 980:
        write()
    late = seconds(write, 20) * 1000
    yield Figure("Write File at step 10", early, "ms", 3.0, bare, "write and rename of one file")
    yield Figure("Write File at step 1,000", late, "ms", 3.0, bare, "write and rename of one file")
    yield Figure("step 1,000 over step 10", late / early, "×", 1.3)
    read = seconds(lambda: env.step(Call(action="Read File", args={"file_name": "note.txt"})), 50) * 1000
    yield Figure(
        "Read File", read, "ms", 3.0, seconds((folder / "bare.txt").read_bytes, 50) * 1000, "read of one file"
    )


def executions(env: Environment) -> Iterator[Figure]:
    """A script that prints 1, against the same sandbox started by nothing but subprocess."""
    env.step(Call(action="Write File", args={"file_name": "one.py", "content": "print(1)"}))
    world = env.context

    def bare() -> None:
        box = world.sandbox_spec()
        data = {name: bwrap._open_pipe_with(content) for name, content in bwrap.GENERATED_ETC_FILES.items()}
        fds = [*data.values(), bwrap._open_pipe_with(bwrap._seccomp_filter())]
        profile = [*bwrap._bwrap_options(box, data, ""), "--seccomp", str(fds[-1]), "--"]
        command = [*bwrap._setpriv_command(box.uid), "bwrap", *profile, "python", "-u", "./one.py"]
        child = shared_launcher().start_process(
            command, pass_fds=fds, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/"
        )
        assert child.communicate()[0] == b"1\n"
        for fd in fds:
            os.close(fd)

    def execute() -> None:
        env.step(Call(action="Execute Script", args={"script_name": "one.py"}))

    pairs = [(seconds(bare, 1) * 1000, seconds(execute, 1) * 1000) for _ in range(60)]
    lower, upper = (statistics.median(side) for side in zip(*pairs, strict=True))
    yield Figure(
        "Execute Script of print(1)", upper, "ms", 1.3 * lower, lower, "the bare sandboxed Python start"
    )


def flood(env: Environment) -> Iterator[Figure]:
    """A script that prints 500 MB."""
    script = (
        "import sys\nfor _ in range(500):\n    sys.stdout.write('x' * 99 + '\\n' if False else 'x' * 2**20)\n"
    )
    env.step(Call(action="Write File", args={"file_name": "flood.py", "content": script}))
    bare = seconds(
        lambda: subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL, check=True), 1
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = seconds(lambda: env.step(Call(action="Execute Script", args={"script_name": "flood.py"})), 1)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    yield Figure("500 MB printed: memory of the harness", grown, "MB more", 50)
    yield Figure("500 MB printed: observation", len(env.steps[-1].observation) / 1000, "kB", 20)
    yield Figure("500 MB printed: time", took, "s", 60, bare, "the same, printed to nowhere")


def snapshots(folder: Path, files: int, size: int, limit: float) -> Iterator[Figure]:
    """One small change in a large workspace."""
    workspace = folder / "workspace"
    for number in range(files):
        path = workspace / f"{number % 100:02d}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    store = Store(folder / "snapshots", workspace)
    started = time.perf_counter()
    store.snapshot(0)
    first = time.perf_counter() - started
    before = used(folder / "snapshots")
    count = 0

    def change() -> None:
        nonlocal count
        count += 1
        (workspace / "00" / "0.bin").write_text(f"change {count}")
        store.snapshot(count)

    change()  # the first look after a first snapshot reads again what was written in the same tick of the clock
    walk = seconds(lambda: walked(str(workspace)), 5) * 1000
    took = seconds(change, 15) * 1000
    grown = (used(folder / "snapshots") - before) / count
    what = f"{files:,} files, {files * size / MB:,.0f} MB"
    yield Figure(f"snapshot after one small change, {what}", took, "ms", limit, walk, "a walk with lstat")
    yield Figure("disk for each such snapshot", grown / 1024, "kB", 16)
    yield Figure(f"first snapshot, {what}", first, "s", 60)


def walked(folder: str) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                walked(entry.path)


def used(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def commands() -> Iterator[Figure]:
    """What a person waits for."""
    bare = seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), 5)
    for arguments in (["--help"], ["list", "tasks"]):
        command = [sys.executable, "-m", "mlagentbench", *arguments]
        took = seconds(partial(subprocess.run, command, capture_output=True, check=True), 5)
        yield Figure(f"mlagentbench {' '.join(arguments)}", took, "s", 0.4, bare, "python -c pass")


def research() -> Iterator[Figure]:
    """A long run with a model that takes no time, in a process of its own because its memory is asked for."""
    script = Path(__file__).with_name("research.py")
    done = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, check=True)
    yield from (Figure(**each) for each in json.loads(done.stdout))


def measure() -> Iterator[Figure]:
    setup = prepare_setup(str(TOY), "open", "bwrap", lambda line: print(line, file=sys.stderr))
    with tempfile.TemporaryDirectory(prefix="mlagentbench-overhead-") as name:
        folder = Path(name)
        with environment(setup, folder / "run") as env:
            yield from file_actions(env, folder)
            yield from executions(env)
            yield from flood(env)
        yield from snapshots(folder / "large", 5_000, 200_000, 60)
        yield from snapshots(folder / "many", 20_000, 10, 200)
    yield from research()
    yield from commands()


def report(measured: Iterable[Figure], as_json: bool) -> int:
    """Print figures as they come; 1 if one of them is over its limit."""
    figures = []
    if not as_json:
        print(f"{'what':<58} {'figure':>14} {'at most':>9} {'bare':>9} {'ratio':>7}")
    for figure in measured:
        figures.append(figure)
        if not as_json:
            bare = f"{figure.bare:9.3g} {figure.value / figure.bare:6.2f}×" if figure.bare else ""
            mark = "" if figure.good else "   TOO MUCH"
            print(
                f"{figure.what:<58} {figure.value:8.3g} {figure.unit:<7} {figure.limit:7.3g} {bare}{mark}",
                flush=True,
            )
    if as_json:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
    return 0 if all(figure.good for figure in figures) else 1


def report_of(
    measure: Callable[[Path, int], Iterable[Figure]], purpose: str | None, count: str, usual: int
) -> int:
    """A benchmark that works in a folder, at a size that can be told: the same options wherever there is one."""
    parser = argparse.ArgumentParser(
        description=purpose, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument(f"--{count}", dest="count", type=int, default=usual)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    if given.keep:
        return report(measure(given.keep, given.count), given.json)
    with tempfile.TemporaryDirectory(prefix="mlagentbench-bench-") as name:
        return report(measure(Path(name), given.count), given.json)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    return report(measure(), parser.parse_args().json)


if __name__ == "__main__":
    sys.exit(main())
