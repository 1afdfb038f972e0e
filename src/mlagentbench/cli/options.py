"""Options that several commands share, and how they print."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from mlagentbench.errors import UsageError


def _complete_task(incomplete: str) -> list[str]:
    from mlagentbench.task import Task

    return [name for name in Task.names() if name.startswith(incomplete)]


def _complete_agent(incomplete: str) -> list[str]:
    from mlagentbench.discovery import plugin_names

    return [name for name in plugin_names("agents") if name.startswith(incomplete)]


TaskName = Annotated[
    str,
    typer.Argument(
        metavar="TASK", help="A task, or a folder with a task.toml.", autocompletion=_complete_task
    ),
]
TaskNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="TASK", help="Tasks; all by default.", autocompletion=_complete_task),
]
MovedTask = Annotated[str, typer.Option("--task", help="The task's folder, if it has moved.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
EditionName = Annotated[
    str, typer.Option("--edition", help="open: no credentials, minutes. paper: the paper's data.")
]
SandboxName = Annotated[
    str,
    typer.Option(
        "--sandbox",
        help="auto (the strongest that works), bwrap, landlock, podman[:IMAGE], docker[:IMAGE], or none.",
    ),
]
Gpu = Annotated[
    str, typer.Option("--gpu", help="GPUs that scripts may use: 0, or 0,1, or all. Default: none.")
]
RecordAccess = Annotated[
    bool, typer.Option("--record-access", help="Record which files and sockets scripts open.")
]
Instance = Annotated[str, typer.Option("--instance", help="Data made by prepare --fresh or --twin.")]
StartName = Annotated[
    str,
    typer.Option("--start", help="Solution to start from: starter, or reference or expert for a hard start."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
AgentName = Annotated[
    str,
    typer.Option(
        "--agent", help="An agent (see: list agents), or a file PATH.py.", autocompletion=_complete_agent
    ),
]
AgentOptions = Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE: an option of the agent.")]
ModelName = Annotated[str, typer.Option("--model", help="The agent's model (see: list models).")]
MaxSteps = Annotated[int | None, typer.Option("--steps", min=1, help="Step limit; default: the task's.")]
MaxHours = Annotated[
    float | None, typer.Option("--hours", help="Wall-clock limit in hours; default: the task's.")
]
MaxMemory = Annotated[
    float | None, typer.Option("--memory", help="Memory limit of a script in GB; default: the task's.")
]
MaxTokens = Annotated[
    int | None, typer.Option("--tokens", help="Token limit over all models; default: the task's.")
]
MaxDollars = Annotated[
    float | None,
    typer.Option("--dollars", help="Cost limit over all models in dollars; default: the task's."),
]
OutFolder = Annotated[Path | None, typer.Option("--out", help="Run folder; must be new or empty.")]


def parse_agent_options(settings: list[str] | None) -> dict[str, Any]:
    """Options given as NAME=VALUE; a value is parsed as JSON if possible, and is text otherwise."""
    options: dict[str, Any] = {}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set takes NAME=VALUE; {setting!r} has no '='.")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def drop_none(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def print_json(value: Any) -> None:
    """Print JSON that a program can parse, whatever the encoding of standard output."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # escapes of the stream itself would break the JSON
        text = json.dumps(value, indent=2)
    print(text)


def exit_with_error(message: str, code: int, details: str = "") -> NoReturn:
    """Print one line to standard error, below the lines that a task's own code printed, and exit."""
    with suppress(OSError):
        if details:
            print(details, file=sys.stderr)
        print(f"mlagentbench: {message}", file=sys.stderr)
    sys.exit(code)
