"""Lets attacks loose on tasks: real environments, real sandboxes, real grading."""

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
from mlagentbench.audit.finding import Finding, build_finding
from mlagentbench.errors import Fault, UsageError
from mlagentbench.records import AgentSpec, Limits
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import execute_run
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.sandbox.access_log.recording import require_access_log_support
from mlagentbench.system.cache import temporary_dir
from mlagentbench.system.progress import ProgressCallback

MAX_ATTACK_STEPS = 60  # an attack may take as many as it needs


@dataclass(frozen=True)
class AttackCase:
    """One attack and the task that it is for."""

    attack: str
    setup: Setup


def run_audit(
    tasks: Sequence[str],
    attacks: Sequence[str],
    quick: bool,
    say: ProgressCallback,
    on_finding: Callable[[Finding], None],
) -> list[Finding]:
    """Every attack against every task that it fits; the quick form leaves out what is slow or a repetition."""
    if unknown := sorted(set(attacks) - set(attack_names())):
        raise UsageError(f"no attack {unknown[0]!r}; there are: {', '.join(attack_names())}")
    setups = [prepare_setup(task, "open", "bwrap", say) for task in dict.fromkeys(tasks)]
    duels = [
        AttackCase(name, setup)
        for name in attacks or attack_names()
        for setup in select_setups(name, setups, quick)
    ]
    together = [duel for duel in duels if not load_attack(duel.attack).runs_alone]
    findings: list[Finding] = []
    with plant_host_secrets() as secrets, temporary_dir() as place, _plant_beside_answers(setups) as beside:

        def fight(duel: AttackCase) -> Finding:
            finding = run_attack(duel, place, (*secrets, *beside), quick)
            on_finding(finding)
            return finding

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            findings += pool.map(fight, together)
        findings += [fight(duel) for duel in duels if duel not in together]
    order = {(duel.attack, duel.setup.task.name): place for place, duel in enumerate(duels)}
    return sorted(findings, key=lambda finding: order[finding.attack, finding.task])


def select_setups(name: str, setups: Sequence[Setup], quick: bool) -> list[Setup]:
    """The tasks on which an attack is tried."""
    kind = load_attack(name)
    fit = [setup for setup in setups if kind.applies_to(setup.task)]
    if not quick:
        return fit
    return [] if kind.slow else fit[:1] if kind.task_independent else fit


@contextmanager
def _plant_beside_answers(setups: Sequence[Setup]) -> Iterator[list[Secret]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                temporary_secret_file(
                    f"the folder of the answers of {setup.task.name}",
                    setup.data.folder / f"audit-{token_hex(4)}",
                )
            )
            for setup in setups
        ]


def _can_record_access(setup: Setup) -> bool:
    """Whether this machine can tell which files an attack tried to open; it is not needed for a verdict."""
    try:
        require_access_log_support(setup.sandbox.name)
    except UsageError:
        return False
    return True


def run_attack(duel: AttackCase, place: Path, secrets: tuple[Secret, ...], quick: bool) -> Finding:
    """One attack, as an ordinary run, and what it came to."""
    started = time.monotonic()
    kind = load_attack(duel.attack)
    setup = replace(
        duel.setup, record_access=not quick and not kind.runs_alone and _can_record_access(duel.setup)
    )
    limits = {**setup.task.config.limits.model_dump(), "steps": MAX_ATTACK_STEPS, **kind.limits}
    spec = setup.create_run_spec(AgentSpec(agent=f"audit-{duel.attack}"), 0, Limits.model_validate(limits))
    folder = RunFolder.create(place / spec.id, spec)
    own = (
        write_secret_file("the folder of the run", folder.path / "secret.txt"),
        write_secret_file(
            "a folder beside the workspace", folder.path / "workspace-of-another" / "secret.txt"
        ),
    )
    scene = AttackContext(setup, folder.path, (*secrets, *own), quick)
    attack = kind(scene)
    with folder.lock():
        result = execute_run(setup, attack, folder)
    if result.ending not in ("submitted", "fault"):
        raise Fault(f"the attack {duel.attack} is itself broken: it ended as {result.ending}; {result.note}")
    finding = build_finding(duel.attack, attack, AttackOutcome(scene, folder, result))
    shutil.rmtree(folder.path, ignore_errors=True)  # all of them together could fill a disk
    return finding.replace(seconds=round(time.monotonic() - started, 1))
