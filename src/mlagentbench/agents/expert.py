"""Expert: submits the strongest solution that the task has. Shows how far a task can be taken; not ranked."""

from mlagentbench.agents.reference import Reference


class Expert(Reference):
    """Copies expert/ over the starter, runs it and submits."""

    solution = "expert"
