"""The commands about what runs mean: report, view, compare, leaderboard."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from mlagentbench.options import AsJson, print_json

Folders = Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Folders of runs, of batches, or of those.")]


def report(
    folders: Folders,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the report; new, or an earlier report.")],
    grade_steps: Annotated[bool, typer.Option("--grade-steps", help="Grade every step first, for the curves.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a site about runs that opens from disk, with tables and figures for a paper."""
    from mlagentbench.reports.anytime import grade_steps as grade
    from mlagentbench.reports.runs import read
    from mlagentbench.reports.site.write import write
    from mlagentbench.words import say

    runs = read(folders)
    if grade_steps:
        grade(runs, say)
    done = write(runs, out, say)
    if as_json:
        print_json(done.model_dump(mode="json"))
        return
    print(f"{done.said}: {done.index}")


def view(
    folder: Annotated[Path, typer.Argument(metavar="RUN|FOLDER", help="The folder of a run, of a batch, or of runs.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of 127.0.0.1; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show runs step by step in a browser, on this machine only, and follow those that still go on."""
    import webbrowser
    from threading import Thread

    from mlagentbench.reports.viewer.serve import Server

    with Server(folder, port) as server, suppress(KeyboardInterrupt):
        if as_json:
            print_json({"address": server.address})
        else:
            print(f"{server.address}   (Ctrl-C ends)")
        sys.stdout.flush()
        if not no_browser:
            Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()  # some wait for their browser
        server.serve_forever()


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A folder of runs; with --in, an entrant.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    within: Annotated[list[Path] | None, typer.Option("--in", help="Folder of both; A and B are entrants.")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell which of two entrants is better, by how much, how sure that is, and on which tasks."""
    from mlagentbench.reports.compare import compare as held_against
    from mlagentbench.reports.compare import sides
    from mlagentbench.terminal.standings import show_comparison

    first, second, names = sides(a, b, within or [])
    found = held_against(first, second, names)
    print_json(found.model_dump(mode="json")) if as_json else show_comparison(found)


def leaderboard(
    folders: Folders,
    left_out: Annotated[
        list[str] | None, typer.Option("--without", help="Leave out an edition, grader, data or baseline, by hash.")
    ] = None,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Leave out unfinished runs.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table in Markdown.")] = False,
    as_json: AsJson = False,
) -> None:
    """Rank entrants over all tasks; what cannot be compared is refused."""
    from mlagentbench.reports.leaderboard import leaderboard as ranked
    from mlagentbench.reports.leaderboard import without
    from mlagentbench.reports.runs import read
    from mlagentbench.terminal.standings import show_leaderboard

    found = ranked(without(read(folders), left_out or []), unfinished)
    print_json(found.model_dump(mode="json")) if as_json else show_leaderboard(found, markdown)
