"""What a report over many runs costs: time of the whole command, and memory of all its processes together.

    python benchmarks/report.py [--json] [--runs 1000] [--keep FOLDER]

Exits with 1 if a figure is over its limit. One run of 50 steps is made for real; the others are copies of its folder as
other contestants, tasks and seeds, with other results. --keep leaves runs and report in a folder, to look at.
"""

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from overhead import Figure, report_of

from mlagentbench.analysis import paper
from mlagentbench.grading.grade import grade
from mlagentbench.grading.verdict import compute_verdict
from mlagentbench.records import AgentSpec, Call, Limits, Result, RunSpec
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import build_result, open_environment, populate_workspace
from mlagentbench.runner.setup import prepare_setup

TOY = str(Path(__file__).parents[1] / "tests" / "toy")
STEPS = 50
WHO = [
    ("nothing", ""),
    ("tuner", ""),
    ("react", "provider:small"),
    ("research", "provider:large"),
    ("reference", ""),
]
SKILL = {"nothing": 0.0, "tuner": 0.15, "react": 0.1, "research": 0.3, "reference": 0.6}


def real(place: Path) -> Path:
    """A run of fifty steps: scripts written, run, broken and mended."""
    setup = prepare_setup(TOY, "open", "bwrap", lambda line: print(line, file=sys.stderr))
    folder = RunFolder.create(
        place, setup.create_run_spec(AgentSpec(agent="benchmark"), 0, Limits(steps=STEPS))
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
    return place


def copies(original: Path, out: Path, count: int) -> None:
    """Other runs, whose files are the same but for what was asked and what came of it."""
    folder = RunFolder(original)
    assert folder.result
    drawn = random.Random(0)
    tasks = paper.load_success_rates().tasks
    for number in range(count):
        agent, model = WHO[number % len(WHO)]
        task, seed = tasks[number // len(WHO) % len(tasks)], number // len(WHO) // len(tasks)
        place = out / f"{task}.{agent}.s{seed}.{number:04d}"
        shutil.copytree(original, place, copy_function=os.link)
        for name in ("run.json", "result.json"):
            (place / name).unlink()
        spec = folder.spec.replace(task=task, agent=agent, model=model, seed=seed, id=f"{number:032x}")
        (place / "run.json").write_text(spec.model_dump_json(indent=2))
        if result := outcome(spec, folder.result, drawn):
            (place / "result.json").write_text(result.model_dump_json(indent=2, exclude={"folder"}))


def outcome(spec: RunSpec, like: Result, drawn: random.Random) -> Result | None:
    """A result of some luck: invalid ones, faults and runs that never ended among them."""
    tokens = drawn.randrange(20_000, 400_000) if spec.model else 0
    spent = {
        "seconds": round(drawn.lognormvariate(5, 1), 1),
        "tokens": tokens,
        "dollars": round(tokens * 4e-6, 4),
    }
    base = like.replace(task=spec.task, agent=spec.agent, model=spec.model, seed=spec.seed, **spent)
    luck = drawn.random()
    if luck < 0.005:
        return None
    if luck < 0.015:
        return base.replace(
            ending="fault",
            note="SandboxFault: no space left",
            valid=False,
            success=False,
            score=None,
            improvement=None,
        )
    if luck < 0.2 and spec.agent != "reference":
        return base.replace(
            note="submission.csv is missing",
            valid=False,
            success=False,
            score=None,
            improvement=None,
            improved=None,
        )
    assert spec.baseline
    score = spec.baseline.mean * (1 - drawn.gauss(SKILL[spec.agent], 0.12))
    return base.replace(
        score=score, valid=True, **compute_verdict(score, spec.baseline, spec.better).model_dump()
    )


def watched(command: list[str]) -> tuple[float, float]:
    """Seconds, and the most MB that a command and its children had together (what they share is counted once)."""
    started, most = time.perf_counter(), 0.0
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while child.poll() is None:
        most = max(most, sum(share(pid) for pid in family(child.pid)))
        time.sleep(0.05)
    assert child.returncode == 0
    return time.perf_counter() - started, most / 1024


def family(pid: int) -> list[int]:
    try:
        threads = Path(f"/proc/{pid}/task").iterdir()
        below = [child for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []
    return [pid, *(each for child in below for each in family(int(child)))]


def share(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def measure(folder: Path, count: int) -> Iterator[Figure]:
    runs, site = folder / "runs", folder / "site"
    copies(real(folder / "original"), runs, count)
    command = [sys.executable, "-m", "mlagentbench", "report", str(runs), "-o", str(site)]
    seconds, memory = watched(command)
    what = f"report over {count:,} runs of {STEPS} steps"
    yield Figure(what, seconds, "s", 60)
    yield Figure("memory of all its processes meanwhile", memory, "MB", 1000)
    yield Figure("the same again, where nothing changed", watched(command)[0], "s", 20)
    yield Figure("the index page", (site / "index.html").stat().st_size / 2**20, "MB", 3)
    yield Figure(
        "the site, for each run",
        sum(f.stat().st_size for f in site.rglob("*") if f.is_file()) / 1024 / count,
        "kB",
        300,
    )


if __name__ == "__main__":
    sys.exit(report_of(measure, __doc__, "runs", 1000))
