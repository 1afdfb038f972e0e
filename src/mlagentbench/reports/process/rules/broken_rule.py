"""Rule: the rules of the task, or of the workspace, were broken."""

from collections.abc import Iterator

from mlagentbench.reports.process.evidence import Evidence
from mlagentbench.reports.process.rules.base import Seen

TITLE = "rules broken"
PUT_BACK = "[read-only files were changed"  # how the environment puts it


def broken_rule(evidence: Evidence) -> Iterator[Seen]:
    """What the grader saw in the scripts, each with the step that wrote the script; and read-only files touched."""
    for violation in evidence.run.result.violations if evidence.run.result else ():
        script = violation.partition(" line ")[0]
        writers = [step for step, line in sorted(evidence.changes.items()) if step and script in line.changed]
        yield Seen(f"Against the rules of the task: {violation}.", tuple(writers[-1:]))
    for step in evidence.steps:
        for note in step.notes:
            if note.startswith(PUT_BACK):
                yield Seen(f"{note.strip('[]').capitalize()}.", (step.number,))
