"""From log folders of the original to run folders of ours."""

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
from mlagentbench.grading.grade import Grade, grade
from mlagentbench.records import Baseline, Hardware, Hashes, ImportSource, Result, RunSpec
from mlagentbench.runner.baselines import find_baseline
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import build_result
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.system.progress import ProgressCallback

ORIGINAL_EDITION = "original"  # which is none of ours: its scores are compared with nothing of ours
UNKNOWN_HARDWARE = Hardware(cpu="unknown", cores=0, memory_gb=0.0, system="unknown", python="unknown")


def import_logs(
    paths: Sequence[Path],
    out: Path,
    task: str = "",
    scores: Sequence[Path] = (),
    edition: str = "",
    say: ProgressCallback = print,
) -> list[Result]:
    """Every log folder below `paths` as a run below `out`; one that is there already is left as it is."""
    claims = ClaimedScores(scores)
    baselines = (
        claims.baselines_by_task(read_original_run(logs, task) for logs in _find_all_logs(paths))
        if scores
        else {}
    )
    ready = cache(lambda name: prepare_setup(name, edition, "bwrap", say))
    results, names = [], set[str]()
    for logs in _find_all_logs(paths):  # one at a time: a log may hold much
        place = out / _make_unique(names, _folder_name(logs.name))
        if place.exists():
            say(f"{place} is there already")
            continue
        run = read_original_run(logs, task)
        setup = ready(run.known_task.name) if edition and run.known_task else None
        results.append(_import_atomically(run, place, setup, claims, baselines.get(run.task)))
        say(f"{run.logs.name}: {len(run.steps)} steps, {len(run.logs.notes)} notes")
    return results


def _find_all_logs(paths: Sequence[Path]) -> list[LogFolder]:
    found: dict[Path, LogFolder] = {}
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"there is no folder {path}")
        for logs in find_log_folders(path):
            found.setdefault(logs.root, logs)
    if not found:
        looked = ", ".join(map(str, paths))
        raise UsageError(f"no log of the original lies below {looked}: one has a folder env_log or agent_log")
    return list(found.values())


def _folder_name(log: str) -> str:
    """The name of a run's folder: one component, whatever the log is called."""
    return re.sub(r"[^\w.-]+", "-", log, flags=re.ASCII).strip("-.")[:150] or "run"


def _make_unique(names: set[str], name: str) -> str:
    """The name, with a number if another log of this import has it."""
    number, unlike = 1, name
    while unlike in names:
        number += 1
        unlike = f"{name}-{number}"
    names.add(unlike)
    return unlike


def _import_atomically(
    run: OriginalRun, place: Path, setup: Setup | None, claims: ClaimedScores, baseline: Baseline | None
) -> Result:
    """One run, which appears whole or not at all."""
    building = place.with_name(f".{place.name}.part")
    shutil.rmtree(building, ignore_errors=True)  # a killed import's
    try:
        result = _build_run(run, building, setup, claims, baseline)
        building.rename(place)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return result.replace(folder=str(place.resolve()))


def _build_run(
    run: OriginalRun, place: Path, setup: Setup | None, claims: ClaimedScores, baseline: Baseline | None
) -> Result:
    folder = RunFolder.create(place, _build_spec(run, baseline))
    for step in run.steps:
        folder.trace.append(step.model_dump_json())
    for call in run.calls:
        folder.model_calls.append(call.model_dump_json())
    import_snapshots(run, folder)
    graded, note = (
        _grade_run(run, folder, setup)
        if setup
        else (None, "no score came with the log: see --scores, --grade")
    )
    spec = _regraded_spec(folder.spec, setup) if graded and setup else folder.spec
    if graded is None and run in claims:
        graded, note = _claimed_grade(claims.score(run)), "the score is what the original's evaluation claims"
    folder.write_file("run.json", spec.replace(imported=_provenance(run)).model_dump_json(indent=2))
    result = build_result(RunFolder(place), list(run.steps), run.ending, graded or Grade())
    notes = [run.ending_note, graded.invalid if graded and graded.invalid else note]
    result = result.replace(ungraded=graded is None, note="; ".join(filter(None, notes)))
    folder.write_result(result)
    return result


def _regraded_spec(spec: RunSpec, setup: Setup) -> RunSpec:
    """The score is our grader's, on data of ours, and depends on them."""
    config, known = setup.task.config, find_baseline(setup.task, setup.edition, setup.data)
    spec = spec.replace(task=setup.task.load_name, edition=setup.edition, hashes=setup.hashes, baseline=known)
    return spec.replace(metric=config.metric, better=config.better, kind=setup.data.kind)


def _claimed_grade(score: float | None) -> Grade:
    return Grade(
        score=score,
        invalid="" if score is not None else "the original's evaluation found no valid submission",
    )


def _grade_run(run: OriginalRun, folder: RunFolder, setup: Setup) -> tuple[Grade | None, str]:
    """Our grader's word, if it has the answers to what was asked; else why it has not."""
    store, last = folder.open_store(setup.data, writable=False), len(run.steps)
    if why := explain_mismatch(store, last, setup.data, setup.task.config.submission):
        return None, f"the grader of {setup.task.name} ({setup.edition}) does not fit: {why}"
    try:
        graded = grade(setup.task, setup.data, store, last, setup.sandbox)
    except Fault as fault:
        return None, f"it could not be graded: {fault}"
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
