"""Measures what the harness itself costs, each figure next to a lower bound measured in the same run.

    python benchmarks/overhead.py [--json]

Exits with 1 if a figure is over its limit.
"""

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from blake3 import blake3

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
WINDOW_STEPS, STEPS = 100, (10, 1_000, 10_000)
MAX_SANDBOX_OVERHEAD_MS = 5.0
MAX_START_S = 0.2


@dataclass
class Figure:
    name: str
    value: float
    unit: str
    limit: float
    lower_bound: float | None = None
    lower_bound_name: str = ""

    @property
    def is_within_limit(self) -> bool:
        return self.value <= self.limit


def median_seconds(operation: Callable[[], object], times: int) -> float:
    """The median duration of an operation."""
    samples = []
    for _ in range(times):
        started = time.perf_counter()
        operation()
        samples.append(time.perf_counter() - started)
    return statistics.median(samples)


@contextmanager
def open_run(setup: Setup, folder: Path) -> Iterator[Environment]:
    run = RunFolder.create(
        folder, setup.create_run_spec(AgentSpec(agent="benchmark"), 0, Limits(steps=100_000))
    )
    env = open_environment(setup, run)
    try:
        populate_workspace(env, setup)
        yield env
    finally:
        env.close()


class NoteWriter:
    """Takes steps that write a small file."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    def write(self) -> None:
        content = f"note {len(self.env.steps)}"
        self.env.step(Call(action="Write File", args={"file_name": "note.txt", "content": content}))

    def advance_to(self, step: int) -> None:
        while len(self.env.steps) < step:
            self.write()


def measure_file_actions(envs: Sequence[Environment], folder: Path) -> Iterator[Figure]:
    """An action that changes a small workspace, at different steps of as many runs."""
    writers, bare = [NoteWriter(env) for env in envs], BareRecorder(folder / "bare")
    for writer, step in zip(writers, STEPS, strict=True):
        writer.advance_to(step)
    # In turns, so that all of them meet the same machine.
    operations = (bare.write, *(writer.write for writer in writers))
    rounds = [[median_seconds(operation, 1) for operation in operations] for _ in range(WINDOW_STEPS)]
    lower_bound, *medians = (statistics.median(side) * 1000 for side in zip(*rounds, strict=True))
    for step, median in zip(STEPS, medians, strict=True):
        name = "the same files and lines, written by hand"
        yield Figure(f"Write File at step {step:,}", median, "ms", 3.0, lower_bound, name)
    # The first steps also create the folders of the snapshots, so later ones are compared as well.
    for step, median in zip(STEPS[:-1], medians[:-1], strict=True):
        yield Figure(f"step {STEPS[-1]:,} over step {step:,}", medians[-1] / median, "×", 1.1)
    env = envs[-1]
    read = (
        median_seconds(lambda: env.step(Call(action="Read File", args={"file_name": "note.txt"})), 50) * 1000
    )
    lower_bound = median_seconds((folder / "bare" / "note.txt").read_bytes, 50) * 1000
    yield Figure("Read File", read, "ms", 3.0, lower_bound, "read of one file")


class BareRecorder:
    """The lower bound of a step that writes a file: what stays on disk after it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        (folder / "objects").mkdir(parents=True)

    def write(self) -> None:
        """Write a file, its copy under the name of its hash, and a line in each of two journals."""
        self.count += 1
        content = f"note {self.count}".encode()
        (self.folder / "note.txt").unlink(missing_ok=True)
        for path in (self.folder / "note.txt", self.folder / "objects" / hashlib.sha256(content).hexdigest()):
            partial = path.with_name("partial")
            partial.write_bytes(content)
            partial.rename(path)
        for name in ("manifest", "trace"):
            with (self.folder / name).open("ab", buffering=0) as journal:
                journal.write(json.dumps({"step": self.count, "changed": str(content)}).encode() + b"\n")


def measure_executions(env: Environment) -> Iterator[Figure]:
    """A script that prints 1, compared with the same sandbox and with the same Python started directly."""
    env.step(Call(action="Write File", args={"file_name": "one.py", "content": "print(1)"}))
    context = env.context
    script = context.workspace.root / "one.py"

    def start_in_sandbox(*command: str) -> None:
        spec = context.sandbox_spec()
        data = {name: bwrap._open_pipe_with(content) for name, content in bwrap.GENERATED_ETC_FILES.items()}
        fds = [*data.values(), bwrap._open_pipe_with(bwrap._seccomp_filter(has_memory_cgroup=True))]
        profile = [*bwrap._bwrap_options(spec, data, ""), "--seccomp", str(fds[-1]), "--"]
        child = shared_launcher().start_process(
            [*bwrap._setpriv_command(spec.uid), "bwrap", *profile, *command],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd="/",
        )
        child.communicate()
        assert child.returncode == 0
        for fd in fds:
            os.close(fd)

    operations: list[Callable[[], object]] = [
        partial(start_in_sandbox, "true"),
        partial(subprocess.run, ["true"], check=True),
        partial(subprocess.run, [sys.executable, "-u", script], check=True, stdout=subprocess.DEVNULL),
        partial(start_in_sandbox, "python", "-u", "./one.py"),
        partial(env.step, Call(action="Execute Script", args={"script_name": "one.py"})),
    ]
    rounds = [[median_seconds(operation, 1) * 1000 for operation in operations] for _ in range(60)]
    empty, true, python, direct, step = map(statistics.median, zip(*rounds, strict=True))
    floor = python + empty - true
    yield Figure(
        "Execute Script of print(1)",
        step,
        "ms",
        floor + MAX_SANDBOX_OVERHEAD_MS,
        floor,
        "the same Python without a sandbox, plus an empty sandbox",
    )
    yield Figure("the same, started directly in the sandbox", direct, "ms", 1.3 * floor, floor, "the same")


def measure_output_flood(env: Environment) -> Iterator[Figure]:
    """A script that prints 500 MB."""
    script = "import sys\nfor _ in range(500):\n    sys.stdout.write('x' * 2**20)\n"
    env.step(Call(action="Write File", args={"file_name": "flood.py", "content": script}))
    lower_bound = median_seconds(
        lambda: subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL, check=True), 1
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    elapsed = median_seconds(
        lambda: env.step(Call(action="Execute Script", args={"script_name": "flood.py"})), 1
    )
    growth_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    yield Figure("500 MB printed: memory of the harness", growth_mb, "MB more", 50)
    yield Figure("500 MB printed: observation", len(env.steps[-1].observation) / 1000, "kB", 20)
    yield Figure("500 MB printed: time", elapsed, "s", 60, lower_bound, "the same, printed to /dev/null")


def measure_snapshots(folder: Path, files: int, size: int, limit: float) -> Iterator[Figure]:
    """One small change in a large workspace."""
    workspace = folder / "workspace"
    for number in range(files):
        path = workspace / f"{number % 100:02d}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    store = Store(folder / "snapshots", workspace)
    first = median_seconds(lambda: store.snapshot(0), 1)
    bare_first = median_seconds(lambda: hash_and_copy(workspace, folder / "bare"), 1)
    before = disk_usage(folder / "snapshots")
    count = 0

    def change() -> None:
        nonlocal count
        count += 1
        (workspace / "00" / "0.bin").write_text(f"change {count}")
        store.snapshot(count)

    # The first scan after a snapshot reads again what was written in the same tick of the clock.
    change()
    walk_ms = median_seconds(lambda: walk(str(workspace)), 5) * 1000
    elapsed = median_seconds(change, 15) * 1000
    growth_bytes = (disk_usage(folder / "snapshots") - before) / count
    size_text = f"{files:,} files, {files * size / MB:,.0f} MB"
    yield Figure(
        f"snapshot after one small change, {size_text}", elapsed, "ms", limit, walk_ms, "a walk with lstat"
    )
    changed_kb = (workspace / "00" / "0.bin").stat().st_blocks / 2
    yield Figure(
        "disk usage of each such snapshot", growth_bytes / 1024, "kB", 16, changed_kb, "the changed file"
    )
    yield Figure(
        f"first snapshot, {size_text}", first, "s", 60, bare_first, "read, hash and write every file"
    )


def walk(folder: str) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                walk(entry.path)


def hash_and_copy(source: Path, target: Path) -> None:
    """A first snapshot by hand: read, hash and write every file, one after another."""
    target.mkdir()
    for folder, _, names in os.walk(source):
        for name in names:
            content = Path(folder, name).read_bytes()
            (target / blake3(content).hexdigest()).write_bytes(content)


def disk_usage(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def measure_commands() -> Iterator[Figure]:
    """Commands that a user waits for."""
    lower_bound = median_seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), 5)
    for arguments in (["--help"], ["list", "tasks"], ["show", "house-price"]):
        command = [sys.executable, "-m", "mlagentbench", *arguments]
        elapsed = median_seconds(partial(subprocess.run, command, capture_output=True, check=True), 5)
        yield Figure(
            f"mlagentbench {' '.join(arguments)}", elapsed, "s", MAX_START_S, lower_bound, "python -c pass"
        )


def measure_research_run() -> Iterator[Figure]:
    """A long run with an instant model, in its own process because its memory is measured."""
    script = Path(__file__).with_name("research.py")
    done = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, check=True)
    yield from (Figure(**figure) for figure in json.loads(done.stdout))


def measure() -> Iterator[Figure]:
    setup = prepare_setup(str(TOY), "open", "bwrap", lambda line: print(line, file=sys.stderr))
    with tempfile.TemporaryDirectory(prefix="mlagentbench-overhead-") as name:
        folder = Path(name)
        with ExitStack() as runs:
            envs = [runs.enter_context(open_run(setup, folder / f"run-{step}")) for step in STEPS]
            yield from measure_file_actions(envs, folder)
        with open_run(setup, folder / "run") as env:
            yield from measure_executions(env)
            yield from measure_output_flood(env)
        yield from measure_snapshots(folder / "large", 5_000, 200_000, 60)
        yield from measure_snapshots(folder / "many", 20_000, 10, 200)
    yield from measure_research_run()
    yield from measure_commands()


def _format_figure(figure: Figure) -> str:
    value = f"{figure.value:8.3g} {figure.unit:<7} {figure.limit:7.3g}"
    bound = figure.lower_bound
    ratio = f"{bound:9.3g} {figure.value / bound:6.2f}×  {figure.lower_bound_name}" if bound else ""
    return f"{figure.name:<58} {value} {ratio}{'' if figure.is_within_limit else '   OVER THE LIMIT'}"


def report(measured: Iterable[Figure], as_json: bool) -> int:
    """Print figures as they are measured; return 1 if one is over its limit."""
    figures = []
    if not as_json:
        print(f"{'measurement':<58} {'value':>14} {'limit':>9} {'bound':>9} {'ratio':>7}  lower bound")
    for figure in measured:
        figures.append(figure)
        if not as_json:
            print(_format_figure(figure), flush=True)
    if as_json:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
    return 0 if all(figure.is_within_limit for figure in figures) else 1


def main_with_folder(
    measure: Callable[[Path, int], Iterable[Figure]], description: str | None, size_option: str, default: int
) -> int:
    """Run a benchmark that works in a folder, with an option for its size and one to keep the folder."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument(f"--{size_option}", dest="count", type=int, default=default)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    if args.keep:
        return report(measure(args.keep, args.count), args.json)
    with tempfile.TemporaryDirectory(prefix="mlagentbench-bench-") as name:
        return report(measure(Path(name), args.count), args.json)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    return report(measure(), parser.parse_args().json)


if __name__ == "__main__":
    sys.exit(main())
