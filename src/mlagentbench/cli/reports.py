"""Commands about what runs mean: report, view, compare, leaderboard, judge, export."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from mlagentbench.cli.options import AsJson, EditionName, Instance, StartName, print_json
from mlagentbench.errors import UsageError

Folders = Annotated[
    list[Path], typer.Argument(metavar="FOLDER", help="Runs, batches, folders of runs, bundles.")
]


Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", help="Exclude an edition or a start, or a grader, data or baseline by hash."),
]


def report(
    folders: Folders,
    out: Annotated[Path, typer.Option("-o", "--out", help="Report folder; new, or an earlier report.")],
    exclude: Exclude = None,
    grade_steps: Annotated[
        bool, typer.Option("--grade-steps", help="First grade every step, for the progress curves.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a report as web pages. They open from disk: tables, figures, a page for each run."""
    from mlagentbench.analysis import anytime
    from mlagentbench.analysis.leaderboard import exclude_runs
    from mlagentbench.analysis.runs import drop_damaged_records, read_runs
    from mlagentbench.analysis.settings import refuse_mixed_starts
    from mlagentbench.bundles.read import open_runs_or_bundles
    from mlagentbench.formatting import print_progress
    from mlagentbench.pages.site.report import write_report

    with open_runs_or_bundles(folders) as paths:
        runs = exclude_runs(drop_damaged_records(read_runs(paths)), exclude or [])
        refuse_mixed_starts(runs)
        if grade_steps:
            anytime.grade_steps(runs, print_progress)
        written = write_report(runs, out, print_progress)
    if as_json:
        print_json(written.model_dump(mode="json"))
    else:
        print(f"{written.run_counts}: {written.index}")


def view(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN|FOLDER", help="A run, a folder of runs, or a bundle.")
    ],
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0: any free one.")
    ] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show runs step by step in a browser. Runs that are still going on are followed."""
    import webbrowser
    from threading import Thread

    from mlagentbench.bundles.read import open_run_or_bundle
    from mlagentbench.pages.viewer.server import ViewerServer

    with open_run_or_bundle(folder) as path, ViewerServer(path, port) as server, suppress(KeyboardInterrupt):
        if as_json:
            print_json({"address": server.url})
        else:
            print(f"{server.url}   (Ctrl-C stops it)")
        sys.stdout.flush()
        if not no_browser:
            # In a thread, because some browsers block until they are closed.
            Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        server.serve_forever()


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A folder of runs; with --in, an agent.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    within: Annotated[
        list[Path] | None, typer.Option("--in", help="A folder with the runs of both agents.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two agents. Which one is better, by how much, how certainly, and on which tasks?"""
    from mlagentbench.analysis import compare as comparisons
    from mlagentbench.terminal.comparisons import show_comparison

    first, second, names = comparisons.select_sides(a, b, within or [])
    comparison = comparisons.compare(first, second, names)
    print_json(comparison.model_dump(mode="json")) if as_json else show_comparison(comparison)


def leaderboard(
    folders: Folders,
    exclude: Exclude = None,
    skip_unfinished: Annotated[
        bool, typer.Option("--skip-unfinished", help="Ignore unfinished runs.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    as_json: AsJson = False,
) -> None:
    """Rank agents over all tasks. Runs that cannot be compared are refused."""
    from mlagentbench.analysis.leaderboard import build_leaderboard, exclude_runs
    from mlagentbench.analysis.runs import read_runs
    from mlagentbench.bundles.read import open_runs_or_bundles
    from mlagentbench.terminal.comparisons import show_leaderboard

    with open_runs_or_bundles(folders) as paths:
        ranking = build_leaderboard(exclude_runs(read_runs(paths), exclude or []), skip_unfinished)
    print_json(ranking.model_dump(mode="json")) if as_json else show_leaderboard(ranking, markdown)


def judge(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN", help="Runs, or folders of runs.")],
    model: Annotated[str, typer.Option("--model", help="The judging model; see: list models.")],
    again: Annotated[bool, typer.Option("--again", help="Judge what this model judged before.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a model score how runs went, by a rubric. Opinions are stored apart from results."""
    from mlagentbench.analysis.runs import read_runs
    from mlagentbench.formatting import print_progress
    from mlagentbench.models.base import load_model
    from mlagentbench.process.agreement import measure_agreement
    from mlagentbench.process.judgements import read_judgements
    from mlagentbench.process.llm_judge import judge_run
    from mlagentbench.terminal.judgements import show_agreement, show_judgement, show_judging_cost

    runs, judging_model = read_runs(folders), load_model(model)
    judgeable = (
        runs if len(runs) == 1 else [run for run in runs if run.result and run.steps and not run.is_fault]
    )
    new = []
    for run in judgeable:
        earlier = read_judgements(run)
        if again or earlier is None or model not in {judgement.model for judgement in earlier.judgements}:
            print_progress(f"judging {run.name}")
            new.append(judge_run(run, judging_model, model))
    judged = [(run, judgements) for run in runs if (judgements := read_judgements(run))]
    agreement = measure_agreement(runs)
    if as_json:
        rows = [
            {"run": str(run.folder.path), **judgements.model_dump(mode="json")} for run, judgements in judged
        ]
        cost = {
            "tokens": sum(judgement.tokens for judgement in new),
            "dollars": sum(judgement.dollars for judgement in new),
        }
        agreed = agreement.model_dump(mode="json") if agreement else None
        print_json({"runs": rows, "agreement": agreed, "spent": cost})
        return
    for run, judgements in judged:
        show_judgement(run, judgements)
    show_agreement(agreement)
    show_judging_cost(new)


def export(
    run: Annotated[
        str, typer.Argument(metavar="RUN|TASK", help="A run folder; with --to harbor, a task or its folder.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="The file to write, default: NAME.zip here; for Harbor, the folder."
        ),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="bundle; inspect: a log for `inspect view`; harbor: a task folder for Harbor."
        ),
    ] = "bundle",
    without_data: Annotated[
        bool, typer.Option("--without-data", help="Leave out the task's public data.")
    ] = False,
    edition: EditionName = "open",
    instance: Instance = "",
    start: StartName = "starter",
    reward: Annotated[
        str, typer.Option("--reward", help="With --to harbor: success (0 or 1) or progress.")
    ] = "success",
    as_json: AsJson = False,
) -> None:
    """Write a run as one file, or a task as a folder for Harbor. `verify` accepts a bundle on any machine."""
    from mlagentbench.bundles.write import export_run
    from mlagentbench.formatting import format_command
    from mlagentbench.runner.folder import RunFolder

    if to == "harbor":
        _export_harbor_task(run, out, edition, instance, start, reward, as_json)
        return
    folder = RunFolder(Path(run))
    if to == "inspect":
        from mlagentbench.adapters.inspect.logs import write_log

        target = out or Path(f"{folder.path.name}.eval")
        write_log(folder.path, target)
        print_json({"log": str(target), "bytes": target.stat().st_size}) if as_json else print(target)
        return
    if to != "bundle":
        raise UsageError(f"No such export format: {to!r}. Available: bundle, inspect, harbor.")
    target = out or Path(f"{folder.path.name}.zip")
    manifest = export_run(folder, target, not without_data)
    size = target.stat().st_size
    if as_json:
        print_json({"bundle": str(target), "bytes": size, **manifest.model_dump(mode="json")})
        return
    print(f"{target}: {len(manifest.files)} files, {size / 1e6:,.1f} MB")
    print(f"check it on any machine with: {format_command('verify', str(target))}")


def _export_harbor_task(
    task: str, out: Path | None, edition: str, instance: str, start: str, reward: str, as_json: bool
) -> None:
    from mlagentbench.adapters.harbor.export import export_task
    from mlagentbench.formatting import print_progress
    from mlagentbench.task import Task, parse_start

    target = out or Path(Task.load(task).name)
    setup = export_task(task, target, edition, print_progress, instance, parse_start(start), reward)
    if as_json:
        print_json({"folder": str(target), "task": setup.task.name, "data": setup.data.hash})
        return
    print(target)
