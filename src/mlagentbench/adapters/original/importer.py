"""Converts log folders of the original MLAgentBench to run folders."""

import re
import secrets
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import mlagentbench
from mlagentbench.adapters.original.claimed_scores import ClaimedScores
from mlagentbench.adapters.original.log_folder import LogFolder, find_log_folders
from mlagentbench.adapters.original.original_run import OriginalRun, read_original_run
from mlagentbench.adapters.original.snapshots import explain_mismatch, import_snapshots
from mlagentbench.adapters.original.task_names import SOURCE_PROGRAM
from mlagentbench.errors import Fault, UsageError
from mlagentbench.grading.grade import grade
from mlagentbench.grading.run_grader import Grade
from mlagentbench.records import Baseline, Hardware, Hashes, ImportSource, Result, RunSpec
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import build_result
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.system.progress import ProgressCallback

ORIGINAL_EDITION = "original"  # not an edition of any task: its scores are not comparable with others
UNKNOWN_HARDWARE = Hardware(cpu="unknown", cores=0, memory_gb=0.0, system="unknown", python="unknown")


def import_logs(
    paths: Sequence[Path],
    out: Path,
    task: str = "",
    scores: Sequence[Path] = (),
    edition: str = "",
    progress: ProgressCallback = print,
) -> list[Result]:
    """Import every log folder at or below `paths`.

    Args:
        paths: Folders to search for logs.
        out: Where to create the run folders. Runs that exist already are left as they are.
        task: The task of all logs; by default it is detected from each log.
        scores: Result files of the original's evaluation.
        edition: If set, grade the runs with the grader and the data of this edition.
        progress: Called with one line of text per log.

    Returns:
        The results of the newly imported runs.

    Raises:
        UsageError: A folder does not exist, contains no logs, or a score file cannot be read.
    """
    claims = ClaimedScores(scores)
    baselines = (
        claims.baselines_by_task(read_original_run(logs, task) for logs in _find_all_logs(paths))
        if scores
        else {}
    )
    setup_for = cache(lambda name: prepare_setup(name, edition, "bwrap", progress))
    results, names = [], set[str]()
    for logs in _find_all_logs(paths):  # one at a time: a log may be large
        target = out / _make_unique(names, _folder_name(logs.name))
        if target.exists():
            progress(f"{target} already exists")
            continue
        run = read_original_run(logs, task)
        setup = setup_for(run.known_task.name) if edition and run.known_task else None
        results.append(_import_atomically(run, target, setup, claims, baselines.get(run.task)))
        progress(f"{run.logs.name}: {len(run.steps)} steps, {len(run.logs.notes)} notes")
    return results


def _find_all_logs(paths: Sequence[Path]) -> list[LogFolder]:
    logs_by_root: dict[Path, LogFolder] = {}
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"No such folder: {path}")
        for logs in find_log_folders(path):
            logs_by_root.setdefault(logs.root, logs)
    if not logs_by_root:
        searched = ", ".join(map(str, paths))
        raise UsageError(
            f"No logs of the original MLAgentBench in {searched}. A log has a folder env_log or agent_log."
        )
    return list(logs_by_root.values())


def _folder_name(log: str) -> str:
    """The name of the run folder: a single path component, whatever the log is called."""
    return re.sub(r"[^\w.-]+", "-", log, flags=re.ASCII).strip("-.")[:150] or "run"


def _make_unique(names: set[str], name: str) -> str:
    """The name, with a number appended if another log of this import has it."""
    number, unique = 1, name
    while unique in names:
        number += 1
        unique = f"{name}-{number}"
    names.add(unique)
    return unique


def _import_atomically(
    run: OriginalRun, target: Path, setup: Setup | None, claims: ClaimedScores, baseline: Baseline | None
) -> Result:
    """Import one run; its folder appears only when it is complete."""
    partial = target.with_name(f".{target.name}.part")
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed import
    try:
        result = _build_run(run, partial, setup, claims, baseline)
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return result.replace(folder=target.resolve())


def _build_run(
    run: OriginalRun, target: Path, setup: Setup | None, claims: ClaimedScores, baseline: Baseline | None
) -> Result:
    folder = RunFolder.create(target, _build_spec(run, baseline))
    for step in run.steps:
        folder.trace.append(step.model_dump_json())
    for call in run.calls:
        folder.model_calls.append(call.model_dump_json())
    import_snapshots(run, folder)
    graded, note = (
        _grade_run(run, folder, setup) if setup else (None, "the log has no score: pass --scores or --grade")
    )
    spec = _regraded_spec(folder.spec, setup) if graded and setup else folder.spec
    if graded is None and run in claims:
        graded = _claimed_grade(claims.score(run))
        note = "the score is the claim of the original's evaluation"
    folder.write_file("run.json", spec.replace(imported=_provenance(run)).model_dump_json(indent=2))
    result = build_result(RunFolder(target), list(run.steps), run.ending, graded or Grade())
    notes = [run.ending_note, graded.invalid if graded and graded.invalid else note]
    result = result.replace(ungraded=graded is None, note="; ".join(filter(None, notes)))
    folder.write_result(result)
    return result


def _regraded_spec(spec: RunSpec, setup: Setup) -> RunSpec:
    """The settings of a run that our grader scored on our data: the score depends on them."""
    config, levels = setup.task.config, setup.levels
    return spec.replace(
        task=setup.task.load_name,
        edition=setup.edition,
        hashes=setup.hashes,
        baseline=levels.starter,
        levels=levels,
        scale=config.scale,
        metric=config.metric,
        better=config.better,
        kind=setup.data.kind,
    )


def _claimed_grade(score: float | None) -> Grade:
    return Grade(
        score=score,
        invalid="" if score is not None else "the original's evaluation found no valid submission",
    )


def _grade_run(run: OriginalRun, folder: RunFolder, setup: Setup) -> tuple[Grade | None, str]:
    """Grade a run if our data is the same; otherwise return the reason why not."""
    store, last_step = folder.open_store(setup.data, writable=False), len(run.steps)
    if reason := explain_mismatch(store, last_step, setup.data, setup.task.config.submission):
        return None, f"the grader of {setup.task.name} ({setup.edition}) does not apply: {reason}"
    try:
        graded = grade(setup.task, setup.data, store, last_step, setup.sandbox)
    except Fault as fault:
        return None, f"grading failed: {fault}"
    return graded, ""


def _provenance(run: OriginalRun) -> ImportSource:
    return ImportSource(program=SOURCE_PROGRAM, log=run.logs.name, notes=tuple(run.logs.notes))


def _build_spec(run: OriginalRun, baseline: Baseline | None) -> RunSpec:
    return RunSpec(
        version=mlagentbench.__version__,
        id=secrets.token_hex(8),
        task=run.known_task.name if run.known_task else _folder_name(run.task),
        edition=ORIGINAL_EDITION,
        **run.agent.model_dump(),
        seed=0,
        limits=run.limits,
        sandbox="none",  # the original has none
        metric=run.known_task.metric if run.known_task else "",
        better=run.known_task.better if run.known_task else "higher",
        baseline=baseline,
        hashes=Hashes(task="", grader="", data="", runtime=""),
        hardware=UNKNOWN_HARDWARE,
        started=run.started,
        imported=_provenance(run),
    )
