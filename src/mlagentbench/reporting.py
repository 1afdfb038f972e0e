"""The commands about what runs mean: report, view, compare, leaderboard, judge, export."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from mlagentbench.options import AsJson, print_json

Folders = Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Folders of runs or of batches; bundles.")]


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
    from mlagentbench.reports.unbundle import all_opened
    from mlagentbench.words import say

    with all_opened(folders) as places:
        runs = read(places)
        if grade_steps:
            grade(runs, say)
        done = write(runs, out, say)
    if as_json:
        print_json(done.model_dump(mode="json"))
        return
    print(f"{done.said}: {done.index}")


def view(
    folder: Annotated[Path, typer.Argument(metavar="RUN|FOLDER", help="The folder of a run or of runs, or a bundle.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of 127.0.0.1; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show runs step by step in a browser, on this machine only, and follow those that still go on."""
    import webbrowser
    from threading import Thread

    from mlagentbench.reports.unbundle import opened
    from mlagentbench.reports.viewer.serve import Server

    with opened(folder) as place, Server(place, port) as server, suppress(KeyboardInterrupt):
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
    from mlagentbench.reports.unbundle import all_opened
    from mlagentbench.terminal.standings import show_leaderboard

    with all_opened(folders) as places:
        found = ranked(without(read(places), left_out or []), unfinished)
    print_json(found.model_dump(mode="json")) if as_json else show_leaderboard(found, markdown)


def judge(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs, or folders of runs.")],
    model: Annotated[str, typer.Option("--model", help="The model that judges; see: list models.")],
    again: Annotated[bool, typer.Option("--again", help="Judge once more what was judged before.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a model score how a run went by a rubric; beside what is measured, and marked as judged."""
    from mlagentbench.models.base import load
    from mlagentbench.reports.process.agreement import agreement
    from mlagentbench.reports.process.judge import judgement_of
    from mlagentbench.reports.process.judging import judge as ask
    from mlagentbench.reports.runs import read
    from mlagentbench.terminal.judgements import show_agreement, show_judged, show_spent
    from mlagentbench.words import say

    runs, asked = read(folders), load(model)
    chosen = runs if len(runs) == 1 else [run for run in runs if run.result and run.steps and not run.fault]
    done = []
    for run in chosen:
        if again or judgement_of(run) is None:
            say(f"judging {run.name}")
            done.append(ask(run, asked, model))
    found = [(run, judged) for run in runs if (judged := judgement_of(run))]
    agreed = agreement(runs)
    if as_json:
        print_json(
            {
                "runs": [{"run": str(run.folder.path), **judged.model_dump(mode="json")} for run, judged in found],
                "agreement": agreed.model_dump(mode="json") if agreed else None,
                "spent": {"tokens": sum(one.tokens for one in done), "dollars": sum(one.dollars for one in done)},
            }
        )
        return
    for run, judged in found:
        show_judged(run, judged)
    show_agreement(agreed)
    show_spent(done)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The file to write; else NAME.zip here.")] = None,
    without_data: Annotated[bool, typer.Option("--without-data", help="Leave out the task's public data.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a run as one file: record, environment, snapshots, hashes; verify accepts it on another machine."""
    from mlagentbench.reports.bundle import export as write
    from mlagentbench.runner.folder import RunFolder
    from mlagentbench.words import command

    folder = RunFolder(run)
    target = out or Path(f"{folder.path.name}.zip")
    contents = write(folder, target, not without_data)
    size = target.stat().st_size
    if as_json:
        print_json({"bundle": str(target), "bytes": size, **contents.model_dump(mode="json")})
        return
    print(f"{target}: {len(contents.files)} files, {size / 1e6:,.1f} MB")
    print(f"check it, here or elsewhere, with: {command('verify', str(target))}")
