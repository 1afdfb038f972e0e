"""Does memory help? Pairs agents that differ only in whether they keep a research log."""

from collections import defaultdict
from collections.abc import Sequence

from mlagentbench.analysis.compare import Comparison, compare
from mlagentbench.analysis.runs import Run, describe_agent
from mlagentbench.errors import UsageError

MEMORY_OPTIONS = ("memory", "retrieval")  # of our agents, and of imported runs of the original
AGENTS_WITH_MEMORY = ("research",)  # these have such an option; without it they keep no log


def compare_memory(runs: Sequence[Run]) -> list[Comparison]:
    """Compare each agent with memory (A) and the same agent without (B), paired by task."""
    pairs: dict[str, dict[bool, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        options = run.spec.options
        given = [bool(options[name]) for name in MEMORY_OPTIONS if name in options]
        if given or run.spec.agent in AGENTS_WITH_MEMORY:
            other = {name: value for name, value in options.items() if name not in MEMORY_OPTIONS}
            pairs[describe_agent(run.spec.replace(options=other))][any(given)].append(run)
    comparisons = []
    for sides in pairs.values():
        if sides[True] and sides[False]:
            try:
                comparisons.append(compare(sides[True], sides[False]))
            except UsageError:  # no task in common
                continue
    return comparisons
