"""Rule: a rule of the task or the workspace was violated."""

from collections.abc import Iterator

from mlagentbench.process.evidence import Evidence
from mlagentbench.process.rules.base import RuleMatch

TITLE = "rule violations"
READ_ONLY_NOTE_PREFIX = "[read-only files were changed"  # start of the environment's note


def rule_violation(evidence: Evidence) -> Iterator[RuleMatch]:
    """Violations that the grader found, with the step that wrote the script; and changed read-only files."""
    for violation in evidence.run.result.violations if evidence.run.result else ():
        script = violation.partition(" line ")[0]
        writers = [step for step, line in sorted(evidence.changes.items()) if step and script in line.changed]
        yield RuleMatch(f"Violates a rule of the task: {violation}.", tuple(writers[-1:]))
    for step in evidence.steps:
        for note in step.notes:
            if note.startswith(READ_ONLY_NOTE_PREFIX):
                yield RuleMatch(f"{note.strip('[]').capitalize()}.", (step.number,))
