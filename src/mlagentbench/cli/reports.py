"""The commands about what runs mean: report, view, compare, leaderboard, judge, export."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from mlagentbench.cli.options import AsJson, print_json
from mlagentbench.errors import UsageError

Folders = Annotated[
    list[Path], typer.Argument(metavar="FOLDER...", help="Folders of runs or of batches; bundles.")
]


def report(
    folders: Folders,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder of the report; new, or an earlier report.")
    ],
    grade_steps: Annotated[
        bool, typer.Option("--grade-steps", help="Grade every step first, for the curves.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a site about runs that opens from disk, with tables and figures for a paper."""
    from mlagentbench.analysis.anytime import grade_steps as grade
    from mlagentbench.analysis.runs import read_runs
    from mlagentbench.bundles.read import open_runs_or_bundles
    from mlagentbench.formatting import print_progress
    from mlagentbench.pages.site.report import write_report

    with open_runs_or_bundles(folders) as places:
        runs = read_runs(places)
        if grade_steps:
            grade(runs, print_progress)
        done = write_report(runs, out, print_progress)
    if as_json:
        print_json(done.model_dump(mode="json"))
        return
    print(f"{done.run_counts}: {done.index}")


def view(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN|FOLDER", help="The folder of a run or of runs, or a bundle.")
    ],
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Of 127.0.0.1; 0 takes a free one.")
    ] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show runs step by step in a browser, on this machine only, and follow those that still go on."""
    import webbrowser
    from threading import Thread

    from mlagentbench.bundles.read import open_run_or_bundle
    from mlagentbench.pages.viewer.server import ViewerServer

    with (
        open_run_or_bundle(folder) as place,
        ViewerServer(place, port) as server,
        suppress(KeyboardInterrupt),
    ):
        if as_json:
            print_json({"address": server.url})
        else:
            print(f"{server.url}   (Ctrl-C ends)")
        sys.stdout.flush()
        if not no_browser:
            Thread(
                target=webbrowser.open, args=(server.url,), daemon=True
            ).start()  # some wait for their browser
        server.serve_forever()


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A folder of runs; with --in, an entrant.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    within: Annotated[
        list[Path] | None, typer.Option("--in", help="Folder of both; A and B are entrants.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell which of two entrants is better, by how much, how sure that is, and on which tasks."""
    from mlagentbench.analysis.compare import compare as held_against
    from mlagentbench.analysis.compare import select_sides
    from mlagentbench.terminal.comparisons import show_comparison

    first, second, names = select_sides(a, b, within or [])
    found = held_against(first, second, names)
    print_json(found.model_dump(mode="json")) if as_json else show_comparison(found)


def leaderboard(
    folders: Folders,
    left_out: Annotated[
        list[str] | None,
        typer.Option("--without", help="Leave out an edition, grader, data or baseline, by hash."),
    ] = None,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Leave out unfinished runs.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table in Markdown.")] = False,
    as_json: AsJson = False,
) -> None:
    """Rank entrants over all tasks; what cannot be compared is refused."""
    from mlagentbench.analysis.leaderboard import build_leaderboard as ranked
    from mlagentbench.analysis.leaderboard import exclude_runs
    from mlagentbench.analysis.runs import read_runs
    from mlagentbench.bundles.read import open_runs_or_bundles
    from mlagentbench.terminal.comparisons import show_leaderboard

    with open_runs_or_bundles(folders) as places:
        found = ranked(exclude_runs(read_runs(places), left_out or []), unfinished)
    print_json(found.model_dump(mode="json")) if as_json else show_leaderboard(found, markdown)


def judge(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs, or folders of runs.")],
    model: Annotated[str, typer.Option("--model", help="The model that judges; see: list models.")],
    again: Annotated[bool, typer.Option("--again", help="Judge once more what was judged before.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a model score how a run went by a rubric; beside what is measured, and marked as judged."""
    from mlagentbench.analysis.runs import read_runs
    from mlagentbench.formatting import print_progress
    from mlagentbench.models.base import load_model
    from mlagentbench.process.agreement import measure_agreement
    from mlagentbench.process.judgements import read_judgements
    from mlagentbench.process.llm_judge import judge_run as ask
    from mlagentbench.terminal.judgements import show_agreement, show_judgement, show_judging_cost

    runs, asked = read_runs(folders), load_model(model)
    chosen = (
        runs if len(runs) == 1 else [run for run in runs if run.result and run.steps and not run.is_fault]
    )
    done = []
    for run in chosen:
        if again or read_judgements(run) is None:
            print_progress(f"judging {run.name}")
            done.append(ask(run, asked, model))
    found = [(run, judged) for run in runs if (judged := read_judgements(run))]
    agreed = measure_agreement(runs)
    if as_json:
        print_json(
            {
                "runs": [
                    {"run": str(run.folder.path), **judged.model_dump(mode="json")} for run, judged in found
                ],
                "agreement": agreed.model_dump(mode="json") if agreed else None,
                "spent": {
                    "tokens": sum(one.tokens for one in done),
                    "dollars": sum(one.dollars for one in done),
                },
            }
        )
        return
    for run, judged in found:
        show_judgement(run, judged)
    show_agreement(agreed)
    show_judging_cost(done)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file to write; else NAME.zip here.")
    ] = None,
    to: Annotated[
        str, typer.Option("--to", help="bundle, or inspect: a log that `inspect view` opens.")
    ] = "bundle",
    without_data: Annotated[
        bool, typer.Option("--without-data", help="Leave out the task's public data.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a run as one file: record, environment, snapshots, hashes; verify accepts it on another machine."""
    from mlagentbench.bundles.write import export_run as write
    from mlagentbench.formatting import format_command
    from mlagentbench.runner.folder import RunFolder

    folder = RunFolder(run)
    if to == "inspect":
        from mlagentbench.adapters.inspect.logs import write_log as write_log

        target = out or Path(f"{folder.path.name}.eval")
        write_log(folder.path, target)
        print_json({"log": str(target), "bytes": target.stat().st_size}) if as_json else print(target)
        return
    if to != "bundle":
        raise UsageError(f"there is no form {to!r}; there are: bundle, inspect")
    target = out or Path(f"{folder.path.name}.zip")
    contents = write(folder, target, not without_data)
    size = target.stat().st_size
    if as_json:
        print_json({"bundle": str(target), "bytes": size, **contents.model_dump(mode="json")})
        return
    print(f"{target}: {len(contents.files)} files, {size / 1e6:,.1f} MB")
    print(f"check it, here or elsewhere, with: {format_command('verify', str(target))}")
