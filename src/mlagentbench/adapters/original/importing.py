"""From log folders of the original to run folders of ours."""

import re
import secrets
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import mlagentbench
from mlagentbench.adapters.original.logs import Logs, find
from mlagentbench.adapters.original.names import PROGRAM
from mlagentbench.adapters.original.original import Original, read_original
from mlagentbench.adapters.original.scores import Claims
from mlagentbench.adapters.original.snapshots import keep_snapshots, unfit
from mlagentbench.errors import Fault, UsageError
from mlagentbench.grading.grade import Grade, grade
from mlagentbench.preparation.download import Say
from mlagentbench.records import Baseline, Hardware, Hashes, Imported, Result, RunSpec
from mlagentbench.runner.baselines import baseline_of
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import account
from mlagentbench.runner.setup import Setup, set_up

EDITION = "original"  # which is none of ours: its scores are compared with nothing of ours
NOWHERE = Hardware(cpu="unknown", cores=0, memory_gb=0.0, system="unknown", python="unknown")


def import_logs(
    paths: Sequence[Path], out: Path, task: str = "", scores: Sequence[Path] = (), edition: str = "", say: Say = print
) -> list[Result]:
    """Every log folder below `paths` as a run below `out`; one that is there already is left as it is."""
    claims = Claims(scores)
    baselines = claims.baselines(read_original(logs, task) for logs in _found(paths)) if scores else {}
    ready = cache(lambda name: set_up(name, edition, "bwrap", say))
    results, names = [], set[str]()
    for logs in _found(paths):  # one at a time: a log may hold much
        place = out / _unlike(names, _name(logs.name))
        if place.exists():
            say(f"{place} is there already")
            continue
        run = read_original(logs, task)
        setup = ready(run.known.ours) if edition and run.known else None
        results.append(_whole(run, place, setup, claims, baselines.get(run.task)))
        say(f"{run.logs.name}: {len(run.steps)} steps, {len(run.logs.notes)} notes")
    return results


def _found(paths: Sequence[Path]) -> list[Logs]:
    found: dict[Path, Logs] = {}
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"there is no folder {path}")
        for logs in find(path):
            found.setdefault(logs.root, logs)
    if not found:
        looked = ", ".join(map(str, paths))
        raise UsageError(f"no log of the original lies below {looked}: one has a folder env_log or agent_log")
    return list(found.values())


def _name(log: str) -> str:
    """The name of a run's folder: one component, whatever the log is called."""
    return re.sub(r"[^\w.-]+", "-", log, flags=re.ASCII).strip("-.")[:150] or "run"


def _unlike(names: set[str], name: str) -> str:
    """The name, with a number if another log of this import has it."""
    number, unlike = 1, name
    while unlike in names:
        number += 1
        unlike = f"{name}-{number}"
    names.add(unlike)
    return unlike


def _whole(run: Original, place: Path, setup: Setup | None, claims: Claims, baseline: Baseline | None) -> Result:
    """One run, which appears whole or not at all."""
    building = place.with_name(f".{place.name}.part")
    shutil.rmtree(building, ignore_errors=True)  # a killed import's
    try:
        result = _made(run, building, setup, claims, baseline)
        building.rename(place)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return result.but(folder=str(place.resolve()))


def _made(run: Original, place: Path, setup: Setup | None, claims: Claims, baseline: Baseline | None) -> Result:
    folder = RunFolder.create(place, _spec(run, baseline))
    for step in run.steps:
        folder.trace.append(step.model_dump_json())
    for call in run.calls:
        folder.model_calls.append(call.model_dump_json())
    keep_snapshots(run, folder)
    graded, note = _graded(run, folder, setup) if setup else (None, "no score came with the log: see --scores, --grade")
    spec = _regraded(folder.spec, setup) if graded and setup else folder.spec
    if graded is None and run in claims:
        graded, note = _claimed(claims.score(run)), "the score is what the original's evaluation claims"
    folder.keep("run.json", spec.but(imported=_imported(run)).model_dump_json(indent=2))
    result = account(RunFolder(place), list(run.steps), run.ending, graded or Grade())
    notes = [run.why, graded.invalid if graded and graded.invalid else note]
    result = result.but(ungraded=graded is None, note="; ".join(filter(None, notes)))
    folder.finish(result)
    return result


def _regraded(spec: RunSpec, setup: Setup) -> RunSpec:
    """The score is our grader's, on data of ours, and depends on them."""
    config, known = setup.task.config, baseline_of(setup.task, setup.edition, setup.data)
    spec = spec.but(task=setup.task.origin, edition=setup.edition, hashes=setup.hashes, baseline=known)
    return spec.but(metric=config.metric, better=config.better, kind=setup.data.kind)


def _claimed(score: float | None) -> Grade:
    return Grade(
        score=score, invalid="" if score is not None else "the original's evaluation found no valid submission"
    )


def _graded(run: Original, folder: RunFolder, setup: Setup) -> tuple[Grade | None, str]:
    """Our grader's word, if it has the answers to what was asked; else why it has not."""
    store, last = folder.store(setup.data, writable=False), len(run.steps)
    if why := unfit(store, last, setup.data, setup.task.config.submission):
        return None, f"the grader of {setup.task.name} ({setup.edition}) does not fit: {why}"
    try:
        graded = grade(setup.task, setup.data, store, last, setup.sandbox)
    except Fault as fault:
        return None, f"it could not be graded: {fault}"
    return graded, ""


def _imported(run: Original) -> Imported:
    return Imported(program=PROGRAM, log=run.logs.name, notes=tuple(run.logs.notes))


def _spec(run: Original, baseline: Baseline | None) -> RunSpec:
    return RunSpec(
        version=mlagentbench.__version__,
        id=secrets.token_hex(8),
        task=run.known.ours if run.known else _name(run.task),
        edition=EDITION,
        **run.who.model_dump(),
        seed=0,
        limits=run.limits,
        sandbox="none",  # the original has none
        metric=run.known.metric if run.known else "",
        better=run.known.better if run.known else "higher",
        baseline=baseline,
        hashes=Hashes(task="", grader="", data="", runtime=""),
        hardware=NOWHERE,
        started=run.started,
        imported=_imported(run),
    )
