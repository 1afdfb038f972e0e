"""The long form: a million cases over all targets, each target in a process of its own.

python tests/fuzz [--total 1000000] [--seed N] [--only TARGET]... [--seconds S of each] [--cases N of each] [--first N]
"""

import argparse
import faulthandler
import json
import secrets
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzzing import Defect, Figures, fuzz, load, names

MEMORY = "/dev/shm"  # most cases are a file or more, and no disk should have to keep them
LINE = "{:12} {:>9} {:>8} {:>12} {:>10}"


def main() -> int:
    """Every target in turn, as a table; the exit code says whether all held."""
    asked = _asked()
    if asked.room:
        return _alone(asked)
    print(
        f"seed {asked.seed}\n{LINE.format('target', 'cases', 'seconds', 'slowest, ms', 'peak, MB')}",
        flush=True,
    )
    found = [figures for name in asked.only or names() if (figures := _apart(name, asked))]
    cases, seconds = sum(each.cases for each in found), sum(each.seconds for each in found)
    slowest, most = (
        max((each.slowest for each in found), default=0),
        max((each.megabytes for each in found), default=0),
    )
    print(_line(Figures("all", cases, seconds, slowest, most)))
    return 0 if len(found) == len(asked.only or names()) else 1


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--total", type=int, default=1_000_000)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--only", action="append", choices=names())
    parser.add_argument("--room", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _apart(name: str, asked: argparse.Namespace) -> Figures | None:
    """One target in its own process: whatever it does, the next one has its turn."""
    with TemporaryDirectory(prefix="fuzz-", dir=MEMORY if Path(MEMORY).is_dir() else None) as room:
        options = [f"--{each}={getattr(asked, each)}" for each in ("total", "first", "seconds", "seed")]
        options += [f"--cases={asked.cases}"] if asked.cases else []
        options += [f"--only={name}", f"--room={room}"]
        command = [sys.executable, "-W", "error", str(Path(__file__).parent), *options]
        child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if child.returncode == 0:
            figures = Figures(**json.loads(child.stdout))
            print(_line(figures), flush=True)
            return figures
        mark = Path(room, "at")
        at = mark.read_text().strip() if mark.exists() else "none"
        print(f"{name:12} FAILED at case {at} (exit code {child.returncode})\n{child.stdout}", flush=True)
        return None


def _alone(asked: argparse.Namespace) -> int:
    faulthandler.enable()
    target = load(asked.only[0])
    count = asked.cases or asked.total * target.WEIGHT // 1000
    try:
        print(json.dumps(asdict(fuzz(target, asked.room, asked.seed, asked.first, count, asked.seconds))))
    except Defect as defect:
        print(defect)
        return 1
    return 0


def _line(figures: Figures) -> str:
    slowest, peak = f"{figures.slowest * 1000:.1f}", f"{max(figures.megabytes, 0):.0f}"
    return LINE.format(figures.target, f"{figures.cases:,}", f"{figures.seconds:.1f}", slowest, peak)


if __name__ == "__main__":
    sys.exit(main())
