"""Writes reference/cli.md from the command line itself when the site is built."""

import re

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.cli import get_docs_for_click

from mlagentbench.cli.app import app

INTRODUCTION = """# Command line

All commands take `--json` for machine-readable output and `--verbose` for logs on standard error. Exit codes:
0 success, 1 internal error or failed check, 2 usage error, 130 interrupted.

"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated page."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="mlagentbench")
    body = re.sub(r"^# .*\n", "", text, count=1)
    for name, subcommand in command.commands.items():  # typer cuts the list of commands at 45 characters
        summary = (subcommand.help or "").partition("\n")[0].partition(". ")[0].rstrip(".")
        body = re.sub(rf"^\* `{name}`: .*$", f"* `{name}`: {summary}.", body, flags=re.MULTILINE)
    files.append(File.generated(config, "reference/cli.md", content=INTRODUCTION + body))
    return files
