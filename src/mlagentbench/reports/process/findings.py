"""What went wrong in a run, by rules that can be explained; each finding points to its steps."""

from collections.abc import Iterator
from functools import cache

from mlagentbench import discovery
from mlagentbench.errors import Fault
from mlagentbench.records import Record
from mlagentbench.reports.process.evidence import Evidence
from mlagentbench.reports.process.rules.base import Rule
from mlagentbench.reports.runs import Run

ROOM = "reports.process.rules"


class Finding(Record):
    """One error mode of one run; `kind` is the rule that saw it."""

    kind: str
    title: str
    sentence: str
    steps: tuple[int, ...] = ()


def findings(run: Run) -> tuple[Finding, ...]:
    """All that the rules see, in the order in which it happened; a record that cannot be read is a finding itself."""
    try:
        found = sorted(_found(Evidence(run)), key=lambda finding: finding.steps[:1])
    except Fault as fault:
        return (Finding(kind="damaged-record", title="record damaged", sentence=f"{fault}."),)
    return tuple(found)


def kinds() -> dict[str, str]:
    """The title of every rule by its kind, also of those that saw nothing."""
    return {kind: title for kind, title, _ in _rules()}


def _found(evidence: Evidence) -> Iterator[Finding]:
    for kind, title, rule in _rules():
        for seen in rule(evidence):
            yield Finding(kind=kind, title=title, sentence=seen.sentence, steps=seen.steps)


@cache
def _rules() -> tuple[tuple[str, str, Rule], ...]:
    modules = [(name, discovery.plugin(ROOM, name)) for name in discovery.names(ROOM)]
    return tuple((name.replace("_", "-"), module.TITLE, getattr(module, name)) for name, module in modules)
