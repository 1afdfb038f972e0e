"""What a rule is: a TITLE, and a function of the evidence, named as its file, that yields what it saw."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from mlagentbench.process.evidence import Evidence


class RuleMatch(NamedTuple):
    """One thing that went wrong: a sentence for a person, and the steps where it can be seen."""

    sentence: str
    steps: tuple[int, ...] = ()


Rule = Callable[[Evidence], Iterator[RuleMatch]]
