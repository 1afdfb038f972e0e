"""What went wrong in a run, by rules that can be explained; each finding points to its steps."""

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
    """One error mode of one run; `kind` is the rule that saw it."""

    kind: str
    title: str
    sentence: str
    steps: tuple[int, ...] = ()


def collect_findings(run: Run) -> tuple[Finding, ...]:
    """All that the rules see, in the order in which it happened; a record that cannot be read is a finding itself."""
    try:
        found = sorted(_apply_rules(Evidence(run)), key=lambda finding: finding.steps[:1])
    except Fault as fault:
        return (Finding(kind="damaged-record", title="record damaged", sentence=f"{fault}."),)
    return tuple(found)


def rule_titles() -> dict[str, str]:
    """The title of every rule by its kind, also of those that saw nothing."""
    return {kind: title for kind, title, _ in _load_rules()}


def _apply_rules(evidence: Evidence) -> Iterator[Finding]:
    for kind, title, rule in _load_rules():
        for seen in rule(evidence):
            yield Finding(kind=kind, title=title, sentence=seen.sentence, steps=seen.steps)


@cache
def _load_rules() -> tuple[tuple[str, str, Rule], ...]:
    modules = [
        (name, discovery.load_plugin(RULES_PACKAGE, name)) for name in discovery.plugin_names(RULES_PACKAGE)
    ]
    return tuple((name.replace("_", "-"), module.TITLE, getattr(module, name)) for name, module in modules)
