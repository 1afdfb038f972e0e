"""Figures that a text claims, and whether numbers that were shown bear them out."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
METRIC = (
    r"(?:accuracy|acc|error|loss|score|figure|mae|rmsle|rmse|mse|mape|smape|mcrmse|f1|auc|precision|recall|perplexity"
    r"|r2|r²|dice|iou|kappa|bleu|speed-?up|improvement|correlation)"
)
FILLER = (
    r"(?:\s+(?:score|value|rate|figure|on|over|for|the|a|an|this|our|my|its|all|validation|test|train(?:ing)?|held-out"
    r"|set|data|fold|folds|model|best|final|new|now|currently|starter|baseline))"
)
VERB = r"(?:(?:has\s+)?(?:improved|dropped|fell|fallen|rose|risen|increased|decreased|went|goes|grew|shrank)\s+)"
LINK = rf"(?:\s*[:=≈]|\s+{VERB}?(?:of|is|was|at|to|by|from|reached|reaches|became))"
SOFT = r"(?:\s+(?:about|around|approximately|roughly|only|now|just))?[\s*_`~≈]*"
CLAIM = re.compile(
    rf"\b{METRIC}{FILLER}{{0,5}}{LINK}{SOFT}(?P<after>{NUMBER}\s?%?)(?!\w|\s?[*/^]|\.\d)"
    rf"|(?<![\w.])(?P<before>{NUMBER}\s?%?){FILLER}{{0,2}}\s+{METRIC}\b",
    re.IGNORECASE,
)
# A sentence with such a word wishes, supposes, quotes or sums up; it does not report.
UNSURE = re.compile(
    r"\b(?:if|should|would|could|can|might|may|will|want|hop(?:e|ing)|expect\w*|aim\w*|goal|target\w*|threshold|least"
    r"|most|above|below|exceed\w*|than|typical\w*|usual\w*|paper|literature|state[- ]of[- ]the[- ]art|sota|assum\w*"
    r"|suppos\w*|guess\w*|estimat\w*|try|trying|example|until|unless|whether|predict\w*|likely|perhaps|maybe|probably"
    r"|potential\w*|ideal\w*|chance|default\w*|weight\w*|average\w*|averaging|avg|let|suggest\w*)\b|\?|e\.g\.",
    re.IGNORECASE,
)
CHANGE = re.compile(
    r"\b(?:by|gain\w*|improv\w*|increas\w*|decreas\w*|reduc\w*|drop\w*|differ\w*|gap|faster|times|factor|ratio|relative"
    r"|speed-?up|better|worse|half|twice)\b",
    re.IGNORECASE,
)
SENTENCE = re.compile(r"[.!?]\s|\n")
CODE = re.compile(r"```.*?(?:```|\Z)|\*\*|__|`", re.DOTALL)  # and what only makes words bold
SHOWN = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][+-]?\d+)?")
MOST = 5_000  # numbers among which pairs are looked for

# What is the same figure said in another way: in percent, in thousands, as a share of what is wrong, before its root.
FORMS: tuple[Callable[[float], float], ...] = (
    lambda x: x,
    lambda x: x / 100,
    lambda x: x * 100,
    lambda x: x / 1000,
    lambda x: x * 1000,
    lambda x: 1 - x,
    lambda x: 1 - x / 100,
    lambda x: 100 - x,
    lambda x: x * x,
)


class Claim(NamedTuple):
    """A figure as it was said, its value, how exactly it was said, and whether it may be a change between two."""

    words: str
    value: float
    unit: float
    change: bool


def claims(text: str) -> Iterator[Claim]:
    """The figures that a text reports as results; whole numbers below a thousand may be anything and do not count."""
    text = CODE.sub("", text)
    for found in CLAIM.finditer(text):
        said = (found["after"] or found["before"]).rstrip()
        digits = said.rstrip("% ").replace(",", "")
        if "." not in digits and "%" not in said and len(digits) < 4:
            continue
        sentence = _sentence(text, found.start(), found.end())
        if not UNSURE.search(sentence):
            words = " ".join(found[0].split()).strip("*_`")
            yield Claim(words, float(digits), _unit(digits), bool(CHANGE.search(sentence)))


def _sentence(text: str, start: int, end: int) -> str:
    before = [place.end() for place in SENTENCE.finditer(text, max(0, start - 500), start)]
    after = SENTENCE.search(text, end)
    return text[before[-1] if before else max(0, start - 500) : after.start() if after else len(text)]


def _unit(digits: str) -> float:
    """One in the last place: a figure may have been rounded, or cut."""
    mantissa, _, exponent = digits.lower().partition("e")
    return float(f"1e{int(exponent or 0) - len(mantissa.partition('.')[2])}")


def numbers(text: str) -> set[float]:
    """All the numbers in a text."""
    return {float(found.replace(",", "")) for found in SHOWN.findall(text)}


def shown(claim: Claim, seen: Iterable[float]) -> bool:
    """Whether a figure is among some numbers at its own precision, in one of its forms or as a change between two."""
    ordered = sorted(seen)
    low, high = claim.value - claim.unit, claim.value + claim.unit
    if any(_holds(ordered, form(low), form(high)) for form in FORMS):
        return True
    return claim.change and any(_holds(ordered, *ends) for ends in _partners(low, high, ordered[-MOST:]))


def _partners(low: float, high: float, ordered: list[float]) -> Iterator[tuple[float, float]]:
    """Where a second number must lie, for each first one, if the claim is their difference or their ratio."""
    for one in ordered:
        yield one + low, one + high
        yield one * low, one * high
        for share in (1.0, 100.0):  # a part of the first, also in percent
            yield one * (1 - high / share), one * (1 - low / share)
            yield one * (1 + low / share), one * (1 + high / share)


def _holds(ordered: list[float], one: float, other: float) -> bool:
    low, high = sorted((one, other))
    slack = 1e-9 * max(abs(low), abs(high))
    place = bisect_left(ordered, low - slack)
    return place < len(ordered) and ordered[place] <= high + slack
