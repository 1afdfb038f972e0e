"""Measures the cost of a report over many runs: time of the command, and memory of all its processes.

    python benchmarks/report.py [--json] [--runs 1000] [--keep FOLDER]

Exits with 1 if a figure is over its limit, or if the report contains fewer runs than there are. One run of
50 steps is real; the others are copies of its folder with other agents, tasks, seeds, thoughts and results.
--keep leaves the runs and the report in a folder.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile

from overhead import Figure, main_with_folder

from mlagentbench.analysis import paper
from mlagentbench.grading.grade import grade
from mlagentbench.grading.verdict import judge_score
from mlagentbench.records import AgentSpec, Call, Limits, Result, RunSpec
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import build_result, open_environment, populate_workspace
from mlagentbench.runner.setup import prepare_setup

TOY = str(Path(__file__).parents[1] / "tests" / "toy")
STEPS = 50
AGENTS = [
    ("nothing", ""),
    ("tuner", ""),
    ("react", "provider:small"),
    ("research", "provider:large"),
    ("reference", ""),
]
# Lower bounds: programs that only read what a report reads.
READ_RUNS = """
import json, sys
from pathlib import Path
for folder in Path(sys.argv[1]).iterdir():
    for path in folder.glob("*.json*"):
        for line in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            json.loads(line)
"""
STAT_FILES = """
import sys
from pathlib import Path
for path in Path(sys.argv[1]).glob("*/*"):
    path.stat()
"""
SKILL = {"nothing": 0.0, "tuner": 0.15, "react": 0.1, "research": 0.3, "reference": 0.6}


def create_run(run_path: Path) -> Path:
    """Create a run of fifty steps in which scripts are written, run, broken and fixed."""
    setup = prepare_setup(TOY, "open", "bwrap", lambda line: print(line, file=sys.stderr))
    folder = RunFolder.create(
        run_path, setup.create_run_spec(AgentSpec(agent="benchmark"), 0, Limits(steps=STEPS))
    )
    env = open_environment(setup, folder)
    try:
        populate_workspace(env, setup)
        starter = (Path(TOY) / "starter" / "train.py").read_text()
        for number in range(STEPS // 2):
            script = (
                starter.replace("9.5", str(number)) if number % 5 else "print(undefined)  # a mistake\n" * 20
            )
            env.step(
                Call(
                    action="Write File",
                    args={"file_name": "train.py", "content": script},
                    thought="Try another guess. " * 8,
                )
            )
            env.step(
                Call(
                    action="Execute Script",
                    args={"script_name": "train.py"},
                    thought=f"The error should be near {number}.",
                )
            )
        graded = grade(setup.task, setup.data, env.context.store, len(env.steps), setup.sandbox)
    finally:
        env.close()
    folder.write_result(build_result(folder, env.steps, "steps", graded))
    return run_path


def copy_runs(original: Path, out: Path, count: int) -> None:
    """Copy a run, with another specification and result for each copy."""
    folder = RunFolder(original)
    assert folder.result
    random_source = random.Random(0)
    tasks = paper.load_success_rates().tasks
    for number in range(count):
        agent, model = AGENTS[number % len(AGENTS)]
        task, seed = tasks[number // len(AGENTS) % len(tasks)], number // len(AGENTS) // len(tasks)
        run_path = out / f"{task}.{agent}.s{seed}.{number:04d}"
        shutil.copytree(original, run_path, copy_function=os.link)
        for name in ("run.json", "result.json", "trace.jsonl"):
            (run_path / name).unlink()
        trace = (original / "trace.jsonl").read_text()
        (run_path / "trace.jsonl").write_text(trace.replace("Try another", f"In run {number}, try another"))
        spec = folder.spec.replace(task=task, agent=agent, model=model, seed=seed, id=f"{number:032x}")
        (run_path / "run.json").write_text(spec.model_dump_json(indent=2))
        if result := draw_result(spec, folder.result, random_source):
            result = result.replace(**RunFolder(run_path).compute_record_hashes(STEPS))
            (run_path / "result.json").write_text(result.model_dump_json(indent=2, exclude={"folder"}))


def draw_result(spec: RunSpec, template: Result, random_source: random.Random) -> Result | None:
    """Draw a random result; some are invalid, faults, or missing."""
    tokens = random_source.randrange(20_000, 400_000) if spec.model else 0
    costs = {
        "seconds": round(random_source.lognormvariate(5, 1), 1),
        "tokens": tokens,
        "dollars": round(tokens * 4e-6, 4),
    }
    identity = {"task": spec.task, "agent": spec.agent, "model": spec.model, "seed": spec.seed}
    base = template.replace(**identity, **costs)
    chance = random_source.random()
    if chance < 0.005:
        return None
    if chance < 0.015:
        return base.replace(
            ending="fault",
            note="SandboxFault: no space left",
            valid=False,
            success=False,
            score=None,
            improvement=None,
        )
    if chance < 0.2 and spec.agent != "reference":
        return base.replace(
            note="submission.csv is missing",
            valid=False,
            success=False,
            score=None,
            improvement=None,
            improved=None,
        )
    assert spec.baseline
    score = spec.baseline.mean * (1 - random_source.gauss(SKILL[spec.agent], 0.12))
    verdict = judge_score(score, spec)
    assert verdict
    return base.replace(score=score, valid=True, **verdict.model_dump())


def measure_command(command: list[str]) -> tuple[float, float, bytes]:
    """The seconds of a command, the peak MB of it and its children, and what it printed.

    Shared memory counts once.
    """
    started, peak_kb = time.perf_counter(), 0.0
    with TemporaryFile() as output:
        child = subprocess.Popen(command, stdout=output)
        while child.poll() is None:
            peak_kb = max(peak_kb, sum(proportional_kb(pid) for pid in process_tree(child.pid)))
            time.sleep(0.05)
        assert child.returncode == 0
        output.seek(0)
        return time.perf_counter() - started, peak_kb / 1024, output.read()


def process_tree(pid: int) -> list[int]:
    try:
        threads = Path(f"/proc/{pid}/task").iterdir()
        children = [child for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []
    return [pid, *(descendant for child in children for descendant in process_tree(int(child)))]


def proportional_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def measure(folder: Path, count: int) -> Iterator[Figure]:
    runs, site = folder / "runs", folder / "site"
    copy_runs(create_run(folder / "original"), runs, count)
    command = [sys.executable, "-m", "mlagentbench", "report", str(runs), "-o", str(site)]
    seconds, memory, written = measure_command([*command, "--json"])
    # A report that counts copies as one run would be fast, and would measure nothing.
    yield Figure("runs that the report lacks", count - json.loads(written)["runs"], "runs", 0)
    title = f"report over {count:,} runs of {STEPS} steps"
    bare_seconds, bare_memory, _ = measure_command([sys.executable, "-c", READ_RUNS, str(runs)])
    name = "a Python that parses every record"
    yield Figure(title, seconds, "s", 15, bare_seconds, name)
    yield Figure("peak memory of all its processes", memory, "MB", 200, bare_memory, name)
    bare_seconds, *_ = measure_command([sys.executable, "-c", STAT_FILES, str(runs)])
    title = "the same again, nothing changed"
    yield Figure(
        title, measure_command(command)[0], "s", 3, bare_seconds, "a Python that looks at every file"
    )
    yield Figure("the index page", (site / "index.html").stat().st_size / 2**20, "MB", 3)
    site_kb, runs_kb = (count_bytes(path) / 1024 / count for path in (site, runs))
    yield Figure("the site, per run", site_kb, "kB", 300, runs_kb, "the run folder, per run")


def count_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    sys.exit(main_with_folder(measure, __doc__, "runs", 1000))
