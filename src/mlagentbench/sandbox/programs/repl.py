"""Runs inside the sandbox: an interpreter that keeps its variables from one command to the next."""

import ast
import json
import os
import sys
import traceback
from contextlib import suppress

COMMAND_NAME = "<command>"  # in tracebacks


def execute(code: str, namespace: dict[str, object]) -> None:
    """Execute code; if the last statement is an expression, print its value as at a prompt."""
    tree = ast.parse(code, COMMAND_NAME)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
        exec(compile(tree, COMMAND_NAME, "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), COMMAND_NAME, "eval"), namespace)
        if value is not None:
            print(repr(value))
    else:
        exec(compile(tree, COMMAND_NAME, "exec"), namespace)


def print_error(error: BaseException) -> None:
    """Print a traceback without the frames of this program, which call the command."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename != COMMAND_NAME:
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)


def main() -> None:
    """Read one command per line, as JSON; after each, send back its token on the same socket."""
    channel = os.dup(0)
    commands = os.fdopen(channel, "r", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.path.insert(0, os.getcwd())
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line in commands:
        command = json.loads(line)
        try:
            execute(command["code"], namespace)
        except BaseException as error:  # noqa: BLE001 - the agent's code may raise anything, SystemExit included
            with suppress(Exception):  # the code may have closed its output
                print_error(error)
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
        os.write(channel, command["token"].encode())


if __name__ == "__main__":
    main()
