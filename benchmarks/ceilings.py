"""Computes the ceilings of tasks with generated data, and compares them with task.toml.

    python benchmarks/ceilings.py [TASK ...]

A task with a `ceiling.py` has a function `ceiling(public, private)`: the score of the best predictor that
knows how the data is generated, but not the noise. Exits with 1 if task.toml says something else.
"""

import argparse
import importlib.util
import math
import sys

from mlagentbench.formatting import format_score, print_progress
from mlagentbench.preparation.prepare import prepare_data
from mlagentbench.task import Task


def compute_ceiling(task: Task, edition: str) -> float:
    """Run the task's ceiling.py, which may import its neighbours."""
    data = prepare_data(task, edition, print_progress)
    sys.path.insert(0, str(task.folder))
    spec = importlib.util.spec_from_file_location(f"ceiling_of_{task.name}", task.folder / "ceiling.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return float(module.ceiling(data.public, data.private))
    finally:
        sys.path.remove(str(task.folder))
        sys.modules.pop("generator", None)  # each task has its own


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", default=Task.builtin_names())
    wrong = 0
    for task in map(Task.load, parser.parse_args().tasks):
        stored = task.edition("open").levels.ceiling
        if not (task.folder / "ceiling.py").is_file():
            print(f"{task.name}: {format_score(stored.score) + ', ' + stored.how if stored else 'none'}")
            continue
        computed = compute_ceiling(task, "open")
        agrees = stored is not None and math.isclose(stored.score, computed, rel_tol=1e-3)
        wrong += not agrees
        print(f"{task.name}: {computed:.6g} computed, {stored.score if stored else 'none'} in task.toml")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
