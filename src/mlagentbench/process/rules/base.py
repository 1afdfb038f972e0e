"""The interface of a rule: a TITLE, and a function named like its file from evidence to matches."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from mlagentbench.process.evidence import Evidence


class RuleMatch(NamedTuple):
    """One problem: a sentence for the reader, and the steps it refers to."""

    sentence: str
    steps: tuple[int, ...] = ()


Rule = Callable[[Evidence], Iterator[RuleMatch]]
