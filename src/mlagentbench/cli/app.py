"""The command line: parse, call one function, print. Heavy imports happen inside the commands."""

import logging
import sys
from typing import Annotated, Any

import typer

from mlagentbench.cli import audit, authoring, batch, integrations, reports, runs, setup
from mlagentbench.cli.options import exit_with_error
from mlagentbench.errors import Fault, UsageError
from mlagentbench.system.journal import escape_invalid_utf8

# Options of version 0.1 that scripts may still use.
RENAMED_OPTIONS = {
    "--ledger": "--record-access",
    "--without": "--exclude",
    "--unfinished": "--skip-unfinished",
}
VERBOSE_OPTIONS = ("-v", "--verbose")

app = typer.Typer(
    name="mlagentbench",
    help="Measure AI research agents on ML tasks: sandboxed, recorded, graded on hidden answers.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich would take half of the time of --help
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (
    runs.run,
    runs.resume,
    runs.show,
    runs.grade,
    runs.verify,
    batch.batch,
    batch.watch,
    batch.stop,
    reports.report,
    reports.view,
    reports.compare,
    reports.leaderboard,
    reports.judge,
    reports.export,
    setup.list_,
    setup.prepare,
    setup.baseline,
    setup.doctor,
    integrations.mcp,
    integrations.import_,
    authoring.new,
    authoring.check,
    audit.audit,
):
    app.command(command.__name__.rstrip("_"))(command)


def _print_version(requested: bool) -> None:
    if requested:
        from mlagentbench import __version__

        print(f"mlagentbench {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    verbose: Annotated[
        bool, typer.Option(*VERBOSE_OPTIONS, help="Log what happens to standard error.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if verbose:
        logging.basicConfig(
            level=logging.INFO,
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            datefmt="%H:%M:%S",
            stream=sys.stderr,
        )
        logging.getLogger("mlagentbench").setLevel(logging.DEBUG)


def main() -> None:
    """Run a command. A user's mistake is one line and exit code 2, never a traceback."""
    try:
        arguments = sys.argv[1:]
        _require_utf8(arguments)
        sys.exit(app(normalize_arguments(arguments) or ["--help"], standalone_mode=False))
    except typer.Abort:
        sys.exit(130)
    except (Fault, OSError) as error:
        exit_with_error(f"{type(error).__name__}: {error}", 1, getattr(error, "details", ""))
    except Exception as error:
        if isinstance(error, UsageError):
            exit_with_error(str(error), 2)
        if not hasattr(error, "format_message"):
            raise
        exit_with_error(_describe_parser_error(error), 2)


def _describe_parser_error(error: Any) -> str:
    """The message of typer's own errors, whose classes it does not export, with what to do."""
    message: str = error.format_message()
    context = getattr(error, "ctx", None)
    if context is None or any(hint in message for hint in ("Did you mean", "Possible options")):
        return message
    return f"{message.removesuffix('.')}. See: {context.command_path} --help"


def normalize_arguments(arguments: list[str]) -> list[str]:
    """Arguments with current option names, and --verbose in front, where typer expects it.

    Arguments after `--` are not options and stay as they are.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    verbose = [argument for argument in arguments[:end] if argument in VERBOSE_OPTIONS]
    options = [_rename_option(argument) for argument in arguments[:end] if argument not in VERBOSE_OPTIONS]
    return [*verbose[:1], *options, *arguments[end:]]


def _rename_option(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return f"{RENAMED_OPTIONS.get(name, name)}{equals}{value}"


def _require_utf8(arguments: list[str]) -> None:
    """Names are recorded in files that are UTF-8."""
    for argument in arguments:
        if argument != escape_invalid_utf8(argument):
            raise UsageError(f"{escape_invalid_utf8(argument)} is not valid UTF-8. Rename it.")
