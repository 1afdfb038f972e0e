"""Rule: the rules of the task, or of the workspace, were broken."""

from collections.abc import Iterator

from mlagentbench.process.evidence import Evidence
from mlagentbench.process.rules.base import RuleMatch

TITLE = "rules broken"
READ_ONLY_NOTE_PREFIX = "[read-only files were changed"  # how the environment puts it


def rule_violation(evidence: Evidence) -> Iterator[RuleMatch]:
    """What the grader saw in the scripts, each with the step that wrote the script; and read-only files touched."""
    for violation in evidence.run.result.violations if evidence.run.result else ():
        script = violation.partition(" line ")[0]
        writers = [step for step, line in sorted(evidence.changes.items()) if step and script in line.changed]
        yield RuleMatch(f"Against the rules of the task: {violation}.", tuple(writers[-1:]))
    for step in evidence.steps:
        for note in step.notes:
            if note.startswith(READ_ONLY_NOTE_PREFIX):
                yield RuleMatch(f"{note.strip('[]').capitalize()}.", (step.number,))
