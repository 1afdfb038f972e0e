"""Endurance: thousands of short runs while processes are killed, resources end and models misbehave.

    python -m benchmarks.soak [--runs N] [--seconds S] [--seed N] [--size N] [--out FOLDER] [--json]

Goes on where the last call with the same --out stopped, until so many runs are done or so many seconds are over. Exits
with 1 if a promise was broken, and keeps the folder of that round.
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
    """Round after round."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=2000, help="so many in all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no round after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--size", type=int, default=24, help="runs of a round; 24 times that if nothing is killed"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = asked.out.absolute()
    with open_testbed(folder) as place:
        account = soak_report.read_report(folder / "soak.json", asked.seed)
        deadline, longest = time.monotonic() + asked.seconds, 0.0
        while account.count < asked.runs and time.monotonic() + longest < deadline:
            done = Round(place, account.seed, account.rounds, asked.size).play()
            account, longest = account.plus(done), max(longest, done.seconds)
            soak_report.write_report(folder / "soak.json", account)
            said = f"round {account.rounds}: {account.count:,} runs, {sum(account.blows.values())} blows"
            print(f"{said}, {done.seconds:.0f} s", *done.broken, sep="\n  ", file=sys.stderr, flush=True)
    print(account.model_dump_json(indent=2) if asked.json else account.table())
    for each in account.verdict:
        print(f"BROKEN: {each}", file=sys.stderr)
    return 1 if account.verdict else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on, and begins with the round that was under way")
