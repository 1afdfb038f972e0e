"""Rule: a rule of the task or the workspace was violated."""

from collections.abc import Iterator

from mlagentbench.process.evidence import Evidence
from mlagentbench.process.rules.base import RuleMatch

TITLE = "rule violations"
# How the environment's note starts. Runs of earlier versions contain the earlier wording.
READ_ONLY_NOTE_PREFIXES = ("[Read-only files were changed", "[read-only files were changed")


def rule_violation(evidence: Evidence) -> Iterator[RuleMatch]:
    """Violations that the grader found, with the step that wrote the script; and changed read-only files."""
    for violation in evidence.run.result.violations if evidence.run.result else ():
        script = violation.partition(" line ")[0]
        writers = [step for step, line in sorted(evidence.changes.items()) if step and script in line.changed]
        yield RuleMatch(f"Violates a rule of the task: {violation}.", tuple(writers[-1:]))
    for step in evidence.steps:
        for note in step.notes:
            if note.startswith(READ_ONLY_NOTE_PREFIXES):
                text = note.removeprefix("[").removesuffix("]")
                yield RuleMatch(f"{text[0].upper()}{text[1:]}.", (step.number,))
