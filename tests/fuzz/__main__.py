"""The long fuzzing run: a million cases over all targets, each target in its own process.

python tests/fuzz [--total 1000000] [--seed N] [--only TARGET]... [--seconds S] [--cases N] [--first N]

--seconds and --cases apply to each target.
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

from fuzzing import Defect, FuzzStats, fuzz, load_target, target_names

SHARED_MEMORY = "/dev/shm"  # most cases are files, and need not go to a disk
ROW = "{:12} {:>9} {:>8} {:>12} {:>10}"


def main() -> int:
    """Run all targets and print a table; exit with 1 if one failed."""
    args = _parse_args()
    if args.folder:
        return _run_target(args)
    print(
        f"seed {args.seed}\n{ROW.format('target', 'cases', 'seconds', 'slowest, ms', 'peak, MB')}",
        flush=True,
    )
    names = args.only or target_names()
    stats = [stats_of_target for name in names if (stats_of_target := _run_in_subprocess(name, args))]
    cases, seconds = sum(one.cases for one in stats), sum(one.seconds for one in stats)
    slowest = max((one.slowest for one in stats), default=0)
    peak_mb = max((one.peak_mb for one in stats), default=0)
    print(_format_row(FuzzStats("all", cases, seconds, slowest, peak_mb)))
    return 0 if len(stats) == len(names) else 1


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--total", type=int, default=1_000_000)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--only", action="append", choices=target_names())
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _run_in_subprocess(name: str, args: argparse.Namespace) -> FuzzStats | None:
    """Run one target in its own process, so that a crash does not affect the next one."""
    parent = SHARED_MEMORY if Path(SHARED_MEMORY).is_dir() else None
    with TemporaryDirectory(prefix="fuzz-", dir=parent) as folder:
        options = [f"--{option}={getattr(args, option)}" for option in ("total", "first", "seconds", "seed")]
        options += [f"--cases={args.cases}"] if args.cases else []
        options += [f"--only={name}", f"--folder={folder}"]
        command = [sys.executable, "-W", "error", str(Path(__file__).parent), *options]
        child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if child.returncode == 0:
            stats_of_target = FuzzStats(**json.loads(child.stdout))
            print(_format_row(stats_of_target), flush=True)
            return stats_of_target
        progress_file = Path(folder, "at")
        case_number = progress_file.read_text().strip() if progress_file.exists() else "none"
        failure = f"FAILED at case {case_number} (exit code {child.returncode})"
        print(f"{name:12} {failure}\n{child.stdout}", flush=True)
        return None


def _run_target(args: argparse.Namespace) -> int:
    faulthandler.enable()
    target = load_target(args.only[0])
    count = args.cases or args.total * target.CASES_PER_1000 // 1000
    try:
        print(json.dumps(asdict(fuzz(target, args.folder, args.seed, args.first, count, args.seconds))))
    except Defect as defect:
        print(defect)
        return 1
    return 0


def _format_row(stats_of_target: FuzzStats) -> str:
    slowest, peak = f"{stats_of_target.slowest * 1000:.1f}", f"{max(stats_of_target.peak_mb, 0):.0f}"
    cases, seconds = f"{stats_of_target.cases:,}", f"{stats_of_target.seconds:.1f}"
    return ROW.format(stats_of_target.target, cases, seconds, slowest, peak)


if __name__ == "__main__":
    sys.exit(main())
