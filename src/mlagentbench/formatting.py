"""Small phrases that several views share."""

import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from mlagentbench.records import Call, DataKind, Result

# What moves a cursor, changes colours, rings a bell or turns the direction of writing: agents and their scripts may
# print it, terminals must not obey.
ESCAPE_SEQUENCE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)?"
BIDI_CONTROLS = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
CONTROL_CHARS = re.compile(ESCAPE_SEQUENCE + rf"|[\x00-\x08\x0b-\x1f\x7f-\x9f{BIDI_CONTROLS}]", re.DOTALL)


def print_progress(line: str) -> None:
    """One line of progress, apart from results; a run does not end because nobody listens any more."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def strip_control_chars(text: str) -> str:
    """Text without what a terminal would obey."""
    return CONTROL_CHARS.sub("", text)


def to_single_line(text: str, max_chars: int = 300) -> str:
    """Text of somebody else's within a sentence of ours."""
    return "".join(letter if letter.isprintable() else "�" for letter in text[:max_chars])


def summarize_call(call: Call, width: int = 60) -> str:
    """A call in a few words."""
    first = str(next(iter(call.args.values()), "")).strip().partition("\n")[0]
    return strip_control_chars(f"{call.action} {first}").strip()[:width]


def format_command(what: str, folder: str) -> str:
    """A command that can be typed here and now."""
    typed = Path(sys.argv[0])
    at_hand = shutil.which("mlagentbench") or typed.name != "mlagentbench"
    near = Path(folder)
    with suppress(FileNotFoundError, ValueError):  # the working folder may be gone, or elsewhere
        near = near.relative_to(Path.cwd())
    return f"{'mlagentbench' if at_hand else typed} {what} {near}"


def baseline_command(task: str, edition: str, data: str, kind: DataKind | None) -> str:
    """The command that measures the starter on data of which no baseline is known; the default data needs no name."""
    named = {"edition": edition if edition != "open" else "", "instance": data if kind != "public" else ""}
    told = "".join(f" --{option} {value}" for option, value in named.items() if value)
    return f"mlagentbench baseline {task}{told}"


def format_duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def format_score(value: float | None) -> str:
    """A score: enough digits to tell two apart."""
    if value is None:
        return "-"
    return f"{value:,.2f}" if abs(value) >= 1000 else f"{value:.4g}"


def format_percent(value: float | None) -> str:
    """An improvement."""
    return "-" if value is None else f"{value:+.1%}"


def last_line(text: str, width: int = 100) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in strip_control_chars(text[-100 * width :]).splitlines() if line.strip()]
    return (lines[-1] if lines else "")[:width]


def describe_verdict(result: Result) -> str:
    """The verdict in a word or a sentence."""
    if result.ending == "fault":
        return f"FAULT, which counts for nothing: {result.note}"
    if result.ungraded:
        return f"not graded, which counts for nothing: {result.note}"
    if not result.valid:
        return f"INVALID: {result.note}"
    if result.baseline is None:
        return f"scored, but not judged: {result.note}"
    if result.success:
        return "SUCCESS: more than 10 % better than the starter, and not by chance"
    if result.improved:
        return "no success: more than 10 % better than the starter, but noise may explain it"
    return "no success: not 10 % better than the starter"
