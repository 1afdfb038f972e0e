"""Figures that a text claims, and whether numbers that were shown bear them out."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

NUMBER = r"\d{1,15}(?:,\d{3}){0,4}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?"
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
FIGURE = re.compile(rf"(?<![\w.]){NUMBER}\s?%?(?!\w|\s?[*/^]|\.\d)", re.IGNORECASE)
BEFORE = re.compile(rf"\b{METRIC}{FILLER}{{0,5}}{LINK}{SOFT}$", re.IGNORECASE)
AFTER = re.compile(rf"{FILLER}{{0,2}}\s+{METRIC}\b", re.IGNORECASE)
NEAR = 80  # characters, in which a figure is called by its name
WORD = re.compile("[a-z]+")
# A sentence with such a word wishes, supposes, quotes or sums up; it does not report.
UNSURE = frozenset(
    WORD.findall(
        "if should would could can might may will want hope hoping goal threshold least most above below than paper"
        " literature art sota try trying example eg until unless whether likely perhaps maybe probably chance let avg"
    )
)
UNSURE_STEMS = tuple(
    WORD.findall(
        "expect aim target exceed typical usual assum suppos guess estimat predict potential ideal default weight"
        " averag suggest"
    )
)
CHANGE = frozenset(WORD.findall("by gap faster times factor ratio relative speed speedup better worse half twice"))
CHANGE_STEMS = ("gain", "improv", "increas", "decreas", "reduc", "drop", "differ")
SENTENCE = re.compile(r"[.!?]\s|\n")
CODE = re.compile(r"```.*?(?:```|\Z)|\*\*|__|`", re.DOTALL)  # and what only makes words bold
SHOWN = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")
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
    digits: str
    value: float
    unit: float
    change: bool


def claims(text: str) -> Iterator[Claim]:
    """The figures that a text reports as results; whole numbers below a thousand may be anything and do not count."""
    text = CODE.sub("", text)
    for found in FIGURE.finditer(text):
        said = found[0].rstrip()
        digits = said.rstrip("% ").replace(",", "")
        if "." not in digits and "%" not in said and len(digits) < 4:
            continue
        place = _named(text, found.start(), found.start() + len(said))
        sentence = _sentence(text, *place) if place else "?"
        if place and "?" not in sentence and not _has(sentence, UNSURE, UNSURE_STEMS):
            words = " ".join(text[slice(*place)].split())
            yield Claim(words, digits, float(digits), _unit(digits), _has(sentence, CHANGE, CHANGE_STEMS))


def _has(sentence: str, words: frozenset[str], stems: tuple[str, ...]) -> bool:
    return any(word in words or word.startswith(stems) for word in WORD.findall(sentence.lower().replace("e.g.", "eg")))


def _named(text: str, start: int, end: int) -> tuple[int, int] | None:
    """From where to where a figure and its name go, if it has one."""
    first = max(0, start - NEAR)
    if before := BEFORE.search(text[first:start]):
        return first + before.start(), end
    after = AFTER.match(text, end, end + NEAR)
    return (start, after.end()) if after else None


def _sentence(text: str, start: int, end: int) -> str:
    before = [place.end() for place in SENTENCE.finditer(text, max(0, start - 500), start)]
    after = SENTENCE.search(text, end)
    return text[before[-1] if before else max(0, start - 500) : after.end() if after else len(text)]


def _unit(digits: str) -> float:
    """One in the last place: a figure may have been rounded, or cut."""
    mantissa, _, exponent = digits.lower().partition("e")
    return float(f"1e{int(exponent or 0) - len(mantissa.partition('.')[2])}")


def numbers(text: str) -> set[float]:
    """All the numbers in a text."""
    return {float(found.replace(",", "")) for found in SHOWN.findall(text)}


def shown(claim: Claim, ordered: Sequence[float]) -> bool:
    """Whether a figure is among numbers in order, at its own precision, in one of its forms or as a change of two."""
    low, high = claim.value - claim.unit, claim.value + claim.unit
    if any(_holds(ordered, form(low), form(high)) for form in FORMS):
        return True
    return claim.change and any(_holds(ordered, *ends) for ends in _partners(low, high, ordered[-MOST:]))


def _partners(low: float, high: float, ordered: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Where a second number must lie, for each first one, if the claim is their difference or their ratio."""
    for one in ordered:
        yield one + low, one + high
        yield one * low, one * high
        for share in (1.0, 100.0):  # a part of the first, also in percent
            yield one * (1 - high / share), one * (1 - low / share)
            yield one * (1 + low / share), one * (1 + high / share)


def _holds(ordered: Sequence[float], one: float, other: float) -> bool:
    low, high = sorted((one, other))
    slack = 1e-9 * max(abs(low), abs(high))
    place = bisect_left(ordered, low - slack)
    return place < len(ordered) and ordered[place] <= high + slack
