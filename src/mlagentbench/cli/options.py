"""Options that several commands share, and how they print."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mlagentbench.errors import UsageError

TaskName = Annotated[
    str, typer.Argument(metavar="TASK", help="A task of the suite, or a folder with a task.toml.")
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
EditionName = Annotated[
    str, typer.Option("--edition", help="open: no credentials, minutes; paper: the paper's data.")
]
SandboxName = Annotated[
    str, typer.Option("--sandbox", help="bwrap, podman[:IMAGE], docker[:IMAGE]; none: unsandboxed.")
]
Gpu = Annotated[
    str, typer.Option("--gpu", help="GPUs that scripts may use: a number, 0,1 or all; none by default.")
]
RecordAccess = Annotated[
    bool, typer.Option("--record-access", help="Record which files and sockets scripts open.")
]
Instance = Annotated[str, typer.Option("--instance", help="Data drawn by prepare --fresh or --twin.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
AgentName = Annotated[str, typer.Option("--agent", help="An agent's name, or a file PATH.py.")]
AgentOptions = Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE: an option of the agent.")]


def parse_agent_options(given: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE, where VALUE is JSON if it can be, and else text."""
    told: dict[str, Any] = {}
    for each in given or []:
        name, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"--set takes NAME=VALUE, and {each!r} has no =")
        try:
            told[name] = json.loads(value)
        except ValueError:
            told[name] = value
    return told


def print_json(value: Any) -> None:
    """For programs."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # escapes of our own would be no JSON
        text = json.dumps(value, indent=2)
    print(text)
