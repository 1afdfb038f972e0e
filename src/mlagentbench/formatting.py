"""How numbers, durations, commands and verdicts are written, in the terminal and in reports."""

import json
import math
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlagentbench.levels import MIN_GAP_CLOSED, MIN_IMPROVEMENT, SIGNIFICANCE_LEVEL
from mlagentbench.records import Call, DataKind, Result, Start, ToolCall

# How programs name the argument of their tools that is a shell command, or a file.
SHELL_ARGUMENTS = ("command", "cmd")
PATH_SUFFIXES = ("path", "file")

# Sequences that move the cursor, change colours, ring the bell or reverse the writing direction. Agents and
# their scripts may print them; a terminal must not interpret them.
ESCAPE_SEQUENCE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)?"
BIDI_CONTROLS = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
CONTROL_CHARS = re.compile(ESCAPE_SEQUENCE + rf"|[\x00-\x08\x0b-\x1f\x7f-\x9f{BIDI_CONTROLS}]", re.DOTALL)


PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Replace every {{name}} that has a value; other text in double braces stays as it is."""
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def print_progress(line: str) -> None:
    """Print a line of progress to standard error; a closed stream is ignored."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def strip_control_chars(text: str) -> str:
    """Text without characters and sequences that control a terminal."""
    return CONTROL_CHARS.sub("", text)


def to_single_line(text: str, max_chars: int = 300) -> str:
    """Untrusted text for use within a message: one line, printable, not too long."""
    return "".join(char if char.isprintable() else "�" for char in text[:max_chars])


def summarize_call(call: Call, width: int = 60) -> str:
    """An action and its first argument, in a few words; the tool calls of an external program."""
    if tool_calls := call.tool_calls:
        text = "; ".join(map(summarize_tool_call, tool_calls))
        return strip_control_chars(text).strip()[:width]
    first = str(next(iter(call.args.values()), "")).strip().partition("\n")[0]
    return strip_control_chars(f"{call.action} {first}").strip()[:width]


def parse_tool_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments of a tool call; what is not a JSON object is one argument without a name."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return arguments if isinstance(arguments, dict) else {"": arguments}


def name_arguments(call: Call) -> list[tuple[str, Any]]:
    """The arguments of an action with their names; of an external program, those of its tool calls."""
    if not (tool_calls := call.tool_calls):
        return list(call.args.items())
    return [
        (f"{tool_call.name}: {name}" if name else tool_call.name, value)
        for tool_call in tool_calls
        for name, value in parse_tool_arguments(tool_call).items()
    ]


def action_title(call: Call) -> str:
    """The name of an action, or the names of the tools that an external program called."""
    return ", ".join(tool_call.name for tool_call in call.tool_calls) or call.action


def find_shell_command(call: ToolCall) -> str:
    """The shell command that a tool call runs; empty if it runs none."""
    for name in SHELL_ARGUMENTS:
        command = parse_tool_arguments(call).get(name)
        if isinstance(command, list):
            return " ".join(map(str, command))
        if isinstance(command, str):
            return command
    return ""


def summarize_tool_call(call: ToolCall) -> str:
    """A tool and what it works on, in one line: a command, a path, or its first argument."""
    arguments = parse_tool_arguments(call)
    paths = (str(value) for name, value in arguments.items() if name.endswith(PATH_SUFFIXES))
    subject = find_shell_command(call) or next(paths, "") or str(next(iter(arguments.values()), ""))
    return f"{call.name} {subject.strip().partition(chr(10))[0]}".strip()


def format_command(what: str, folder: str) -> str:
    """A command that the user can paste: with the path of the program if it is not on PATH."""
    program = Path(sys.argv[0])
    on_path = shutil.which("mlagentbench") or program.name != "mlagentbench"
    path = Path(folder)
    with suppress(FileNotFoundError, ValueError):  # the working folder may be gone, or elsewhere
        path = path.relative_to(Path.cwd())
    return f"{'mlagentbench' if on_path else program} {what} {path}"


def baseline_command(
    task: str, edition: str, data: str, kind: DataKind | None, start: Start = "starter"
) -> str:
    """The command that measures the baseline of this data; the default edition and data need no option."""
    values = {
        "edition": edition if edition != "open" else "",
        "instance": data if kind != "public" else "",
        "start": start if start != "starter" else "",
    }
    options = "".join(f" --{option} {value}" for option, value in values.items() if value)
    return f"mlagentbench baseline {task}{options}"


def format_duration(seconds: float) -> str:
    """A duration: 3.2 s, 4 min 05 s, 1 h 20 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def format_quantity(number: float, unit: str) -> str:
    """A number with its unit: 1 minute, 2.5 minutes."""
    return f"{number:.3g} {unit}" if number == 1 else f"{number:.3g} {unit}s"


def format_score(value: float | None) -> str:
    """A score with enough digits to compare it."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.2f}"
    if 0.99 < abs(value) < 1:  # what matters is the distance to 1, which gets two digits
        decimals = 1 - math.floor(math.log10(1 - abs(value)))
        return f"{value:.{max(decimals, 4)}f}".rstrip("0")
    return f"{value:.4g}"


def format_percent(value: float | None) -> str:
    """An improvement as a signed percentage."""
    return "-" if value is None else f"{value:+.1%}"


def last_line(text: str, width: int = 100) -> str:
    """The last line that is not empty."""
    lines = [line.strip() for line in strip_control_chars(text[-100 * width :]).splitlines() if line.strip()]
    return (lines[-1] if lines else "")[:width]


def last_lines(text: str, count: int = 12, width: int = 200) -> str:
    """The last lines of what a program printed, safe to show in a terminal."""
    lines = strip_control_chars(text[-count * width * 2 :]).rstrip().splitlines()
    return "\n".join(line[:width] for line in lines[-count:])


def describe_verdict(result: Result) -> str:
    """The verdict as a sentence."""
    if result.ending == "fault":
        return f"FAULT (not counted): {result.note}"
    if result.ungraded:
        return f"not graded (not counted): {result.note}"
    if not result.valid:
        return f"INVALID: {result.note}"
    if result.baseline is None:
        return f"not judged: {result.note}"
    goal = f"{MIN_IMPROVEMENT:.0%} better than the {result.start}"
    if result.gap_closed is not None:
        goal = f"{MIN_GAP_CLOSED:.0%} of the way from the {result.start} to the {_next_level(result)}"
    if result.success:
        return f"SUCCESS: more than {goal}, beyond noise"
    if result.improved:
        return f"no success: more than {goal}, but within noise"
    if result.p_value is None or result.p_value >= SIGNIFICANCE_LEVEL:
        return f"no success: not {goal}"
    better = f"better than the {result.start} beyond noise (p = {result.p_value:.2g})"
    if result.gap_closed is not None:
        return (
            f"no success: {better}, but closes {_floor_percent(result.gap_closed)} of the gap to the"
            f" {_next_level(result)}; {MIN_GAP_CLOSED:.0%} needed"
        )
    gain = _floor_percent(result.improvement or 0.0)
    return f"no success: {better}, but only by {gain}; more than {MIN_IMPROVEMENT:.0%} needed"


def _next_level(result: Result) -> str:
    return "expert" if result.start == "reference" else "ceiling"


def _floor_percent(fraction: float) -> str:
    """A percentage that is rounded down, so that it never shows a threshold that was missed."""
    return f"{math.floor(fraction * 1000 + 1e-9) / 10:.1f}%"
