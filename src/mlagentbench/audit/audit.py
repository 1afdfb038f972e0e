"""Runs attacks against tasks in real environments, with real sandboxes and real grading."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

from mlagentbench.audit.attacks.base import AttackOutcome, attack_names, load_attack
from mlagentbench.audit.canaries import Secret, plant_host_secrets, temporary_secret_file, write_secret_file
from mlagentbench.audit.context import AttackContext
from mlagentbench.audit.finding import AttackFinding, build_finding
from mlagentbench.errors import Fault, UsageError
from mlagentbench.records import AgentSpec, Limits
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import execute_run
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.sandbox.access_log.recording import require_access_log_support
from mlagentbench.system.cache import cache_dir, temporary_dir
from mlagentbench.system.progress import ProgressCallback

MAX_ATTACK_STEPS = 60  # more than any attack needs
MIN_FREE_BYTES = 2 * 10**9  # some attacks try to fill the disk


@dataclass(frozen=True)
class AttackCase:
    """One attack and the task it runs against."""

    attack: str
    setup: Setup


def run_audit(
    tasks: Sequence[str],
    attacks: Sequence[str],
    quick: bool,
    progress: ProgressCallback,
    on_finding: Callable[[AttackFinding], None],
    sandbox: str = "auto",
) -> list[AttackFinding]:
    """Run every attack against every task it applies to; `quick` leaves out slow and repetitive cases."""
    if unknown := sorted(set(attacks) - set(attack_names())):
        raise UsageError(f"No such attack: {unknown[0]!r}. Available: {', '.join(attack_names())}.")
    _require_free_disk()
    setups = [prepare_setup(task, "open", sandbox, progress) for task in dict.fromkeys(tasks)]
    cases = [
        AttackCase(name, setup)
        for name in attacks or attack_names()
        for setup in select_setups(name, setups, quick)
    ]
    concurrent = [case for case in cases if not load_attack(case.attack).runs_alone]
    findings: list[AttackFinding] = []
    with (
        plant_host_secrets() as host_secrets,
        temporary_dir() as runs,
        _plant_data_secrets(setups) as data_secrets,
    ):

        def run_and_report(case: AttackCase) -> AttackFinding:
            finding = run_attack(case, runs, (*host_secrets, *data_secrets), quick)
            on_finding(finding)
            return finding

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            findings += pool.map(run_and_report, concurrent)
        findings += [run_and_report(case) for case in cases if case not in concurrent]
    order = {(case.attack, case.setup.task.name): index for index, case in enumerate(cases)}
    return sorted(findings, key=lambda finding: order[finding.attack, finding.task])


def _require_free_disk() -> None:
    """Raise UsageError if attacks could fill the disk, which would look like a success of the attack."""
    free_bytes = shutil.disk_usage(cache_dir()).free
    if free_bytes < MIN_FREE_BYTES:
        raise UsageError(
            f"The audit needs {MIN_FREE_BYTES / 1e9:g} GB of free disk space in {cache_dir()};"
            f" {free_bytes / 1e9:.1f} GB are free."
        )


def select_setups(name: str, setups: Sequence[Setup], quick: bool) -> list[Setup]:
    """The tasks an attack runs against."""
    attack = load_attack(name)
    applicable = [setup for setup in setups if attack.applies_to(setup.task)]
    if not quick:
        return applicable
    if attack.slow:
        return []
    return applicable[:1] if attack.task_independent else applicable


@contextmanager
def _plant_data_secrets(setups: Sequence[Setup]) -> Iterator[list[Secret]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                temporary_secret_file(
                    f"the data folder of {setup.task.name}",
                    setup.data.folder / f"audit-{token_hex(4)}",
                )
            )
            for setup in setups
        ]


def _can_record_access(setup: Setup) -> bool:
    """Whether this machine can record the files an attack tries to open; no verdict depends on it."""
    try:
        require_access_log_support(setup.sandbox.name)
    except UsageError:
        return False
    return True


def run_attack(case: AttackCase, runs: Path, secrets: tuple[Secret, ...], quick: bool) -> AttackFinding:
    """Run one attack as an ordinary run in a new folder below `runs`, and report what it achieved."""
    started = time.monotonic()
    attack_class = load_attack(case.attack)
    record_access = not quick and not attack_class.runs_alone and _can_record_access(case.setup)
    setup = replace(case.setup, record_access=record_access)
    limits = {**setup.task.config.limits.model_dump(), "steps": MAX_ATTACK_STEPS, **attack_class.limits}
    spec = setup.create_run_spec(AgentSpec(agent=f"audit-{case.attack}"), 0, Limits.model_validate(limits))
    folder = RunFolder.create(runs / spec.id, spec)
    run_secrets = (
        write_secret_file("the run folder", folder.path / "secret.txt"),
        write_secret_file(
            "a folder next to the workspace", folder.path / "workspace-of-another" / "secret.txt"
        ),
    )
    context = AttackContext(setup, folder.path, (*secrets, *run_secrets), quick)
    attack = attack_class(context)
    with folder.lock():
        result = execute_run(setup, attack, folder)
    if result.ending not in ("submitted", "fault"):
        raise Fault(
            f"The attack {case.attack} itself is broken: its run ended as {result.ending!r}: {result.note}"
        )
    finding = build_finding(case.attack, attack, AttackOutcome(context, folder, result))
    shutil.rmtree(folder.path, ignore_errors=True)  # all run folders together could fill a disk
    return finding.replace(seconds=round(time.monotonic() - started, 1))
