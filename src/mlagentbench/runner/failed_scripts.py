"""Describes a script of a run that failed, in its own words."""

import re
from collections.abc import Sequence

from mlagentbench.formatting import last_line, last_lines
from mlagentbench.records import Step

FRAME = re.compile(r'^ +File "/workspace/(?:\./)?(.+?)", line (\d+)', re.MULTILINE)


def describe_failed_script(steps: Sequence[Step]) -> tuple[str, str]:
    """Describe the last script of a run if it failed.

    Returns:
        The reason in one line with the script's own line number, and the last lines that it printed; both
        are empty if no script ran or the last one did not fail.
    """
    executed = [step for step in steps if step.execution]
    if not executed or executed[-1].execution is None or executed[-1].execution.exit_code == 0:
        return "", ""
    status, _, output = executed[-1].observation.partition("\n")
    frames = FRAME.findall(output)
    location = f" ({frames[-1][0]}, line {frames[-1][1]})" if frames else ""
    reason = last_line(output) if frames else status
    return f"{reason}{location}", last_lines(output)
