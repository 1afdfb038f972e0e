"""Findings: what went wrong in a run, by fixed rules; each finding refers to its steps."""

from collections.abc import Iterator
from functools import cache

from mlagentbench import discovery
from mlagentbench.analysis.runs import Run
from mlagentbench.errors import Fault
from mlagentbench.process.evidence import Evidence
from mlagentbench.process.rules.base import Rule
from mlagentbench.records import Record

RULES_PACKAGE = "process.rules"


class Finding(Record):
    """One problem in one run; `kind` is the rule that found it."""

    kind: str
    title: str
    sentence: str
    steps: tuple[int, ...] = ()


def collect_findings(run: Run) -> tuple[Finding, ...]:
    """All findings of a run, ordered by step; an unreadable record is a finding itself."""
    try:
        findings = sorted(_apply_rules(Evidence(run)), key=lambda finding: finding.steps[:1])
    except Fault as fault:
        sentence = f"{str(fault).removesuffix('.')}."
        return (Finding(kind="damaged-record", title="damaged record", sentence=sentence),)
    return tuple(findings)


def rule_titles() -> dict[str, str]:
    """The title of every rule, by the kind of its findings."""
    return {kind: title for kind, title, _ in _load_rules()}


def _apply_rules(evidence: Evidence) -> Iterator[Finding]:
    for kind, title, rule in _load_rules():
        for match in rule(evidence):
            yield Finding(kind=kind, title=title, sentence=match.sentence, steps=match.steps)


@cache
def _load_rules() -> tuple[tuple[str, str, Rule], ...]:
    names = discovery.plugin_names(RULES_PACKAGE)
    modules = [(name, discovery.load_plugin(RULES_PACKAGE, name)) for name in names]
    return tuple((name.replace("_", "-"), module.TITLE, getattr(module, name)) for name, module in modules)
