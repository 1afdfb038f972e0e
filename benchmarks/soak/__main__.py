"""Soak test: thousands of short runs while processes are killed, resources run out and models misbehave.

    python -m benchmarks.soak [--runs N] [--seconds S] [--seed N] [--size N] [--out FOLDER] [--json]

Continues where the last call with the same --out stopped, until all runs are done or the time is up.
Exits with 1 if a check failed, and keeps the folder of that round.
"""

import argparse
import signal
import sys
import time
from pathlib import Path

from benchmarks.soak import soak_report
from benchmarks.soak.round import Round
from benchmarks.soak.testbed import open_testbed


def main() -> int:
    """Run round after round."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=2000, help="total number of runs")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start no round after this many seconds"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--size", type=int, default=24, help="runs per round; 24 times as many in a round without faults"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = args.out.absolute()
    with open_testbed(folder) as testbed:
        report = soak_report.read_report(folder / "soak.json", args.seed)
        deadline, longest_round = time.monotonic() + args.seconds, 0.0
        while report.count < args.runs and time.monotonic() + longest_round < deadline:
            round_report = Round(testbed, report.seed, report.rounds, args.size).run()
            report, longest_round = report.plus(round_report), max(longest_round, round_report.seconds)
            soak_report.write_report(folder / "soak.json", report)
            injections = sum(report.injections.values())
            summary = f"round {report.rounds}: {report.count:,} runs, {injections} injected faults"
            print(
                f"{summary}, {round_report.seconds:.0f} s",
                *round_report.failed_checks,
                sep="\n  ",
                file=sys.stderr,
                flush=True,
            )
    print(report.model_dump_json(indent=2) if args.json else report.table())
    for failure in report.all_failed_checks:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if report.all_failed_checks else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Stopped. Run the same command to continue with the interrupted round.")
