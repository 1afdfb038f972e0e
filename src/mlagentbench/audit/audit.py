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

from mlagentbench.audit.attacks.base import Aftermath, load, names
from mlagentbench.audit.canaries import Secret, held, plant, planted
from mlagentbench.audit.judge import Finding, found
from mlagentbench.audit.scene import Scene
from mlagentbench.errors import Fault, UsageError
from mlagentbench.home import scratch
from mlagentbench.preparation.download import Say
from mlagentbench.records import Contestant, Limits
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import run
from mlagentbench.runner.setup import Setup, set_up
from mlagentbench.sandbox.access.listening import require

STEPS = 60  # an attack may take as many as it needs


@dataclass(frozen=True)
class Duel:
    """One attack and the task that it is for."""

    attack: str
    setup: Setup


def audit(
    tasks: Sequence[str], attacks: Sequence[str], quick: bool, say: Say, told: Callable[[Finding], None]
) -> list[Finding]:
    """Every attack against every task that it fits; the quick form leaves out what is slow or a repetition."""
    if unknown := sorted(set(attacks) - set(names())):
        raise UsageError(f"no attack {unknown[0]!r}; there are: {', '.join(names())}")
    setups = [set_up(task, "open", "bwrap", say) for task in dict.fromkeys(tasks)]
    duels = [Duel(name, setup) for name in attacks or names() for setup in fitting(name, setups, quick)]
    together = [duel for duel in duels if not load(duel.attack).alone]
    findings: list[Finding] = []
    with planted() as secrets, scratch() as place, _beside_answers(setups) as beside:

        def fight(duel: Duel) -> Finding:
            finding = attacked(duel, place, (*secrets, *beside), quick)
            told(finding)
            return finding

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            findings += pool.map(fight, together)
        findings += [fight(duel) for duel in duels if duel not in together]
    order = {(duel.attack, duel.setup.task.name): place for place, duel in enumerate(duels)}
    return sorted(findings, key=lambda finding: order[finding.attack, finding.task])


def fitting(name: str, setups: Sequence[Setup], quick: bool) -> list[Setup]:
    """The tasks on which an attack is tried."""
    kind = load(name)
    fit = [setup for setup in setups if kind.fits(setup.task)]
    if not quick:
        return fit
    return [] if kind.slow else fit[:1] if kind.general else fit


@contextmanager
def _beside_answers(setups: Sequence[Setup]) -> Iterator[list[Secret]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                held(f"the folder of the answers of {setup.task.name}", setup.data.folder / f"audit-{token_hex(4)}")
            )
            for setup in setups
        ]


def _can_listen(setup: Setup) -> bool:
    """Whether this machine can tell which files an attack tried to open; it is not needed for a verdict."""
    try:
        require(setup.sandbox.name)
    except UsageError:
        return False
    return True


def attacked(duel: Duel, place: Path, secrets: tuple[Secret, ...], quick: bool) -> Finding:
    """One attack, as an ordinary run, and what it came to."""
    started = time.monotonic()
    kind = load(duel.attack)
    setup = replace(duel.setup, ledger=not quick and not kind.alone and _can_listen(duel.setup))
    limits = {**setup.task.config.limits.model_dump(), "steps": STEPS, **kind.limits}
    spec = setup.spec(Contestant(agent=f"audit-{duel.attack}"), 0, Limits.model_validate(limits))
    folder = RunFolder.create(place / spec.id, spec)
    own = (
        plant("the folder of the run", folder.path / "secret.txt"),
        plant("a folder beside the workspace", folder.path / "workspace-of-another" / "secret.txt"),
    )
    scene = Scene(setup, folder.path, (*secrets, *own), quick)
    attack = kind(scene)
    with folder.lock():
        result = run(setup, attack, folder)
    if result.ending not in ("submitted", "fault"):
        raise Fault(f"the attack {duel.attack} is itself broken: it ended as {result.ending}; {result.note}")
    finding = found(duel.attack, attack, Aftermath(scene, folder, result))
    shutil.rmtree(folder.path, ignore_errors=True)  # all of them together could fill a disk
    return finding.but(seconds=round(time.monotonic() - started, 1))
