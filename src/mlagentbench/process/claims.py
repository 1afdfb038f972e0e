"""Figures that a text claims, and whether numbers that were shown bear them out."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

NUMBER_PATTERN = r"\d{1,15}(?:,\d{3}){0,4}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?"
METRIC_PATTERN = (
    r"(?:accuracy|acc|error|loss|score|figure|mae|rmsle|rmse|mse|mape|smape|mcrmse|f1|auc|precision|recall|perplexity"
    r"|r2|r²|dice|iou|kappa|bleu|speed-?up|improvement|correlation)"
)
FILLER_PATTERN = (
    r"(?:\s+(?:score|value|rate|figure|on|over|for|the|a|an|this|our|my|its|all|validation|test|train(?:ing)?|held-out"
    r"|set|data|fold|folds|model|best|final|new|now|currently|starter|baseline))"
)
VERB_PATTERN = (
    r"(?:(?:has\s+)?(?:improved|dropped|fell|fallen|rose|risen|increased|decreased|went|goes|grew|shrank)\s+)"
)
LINK_PATTERN = rf"(?:\s*[:=≈]|\s+{VERB_PATTERN}?(?:of|is|was|at|to|by|from|reached|reaches|became))"
APPROXIMATION_PATTERN = r"(?:\s+(?:about|around|approximately|roughly|only|now|just))?[\s*_`~≈]*"
CLAIMED_NUMBER = re.compile(rf"(?<![\w.]){NUMBER_PATTERN}\s?%?(?!\w|\s?[*/^]|\.\d)", re.IGNORECASE)
METRIC_BEFORE = re.compile(
    rf"\b{METRIC_PATTERN}{FILLER_PATTERN}{{0,5}}{LINK_PATTERN}{APPROXIMATION_PATTERN}$", re.IGNORECASE
)
METRIC_AFTER = re.compile(rf"{FILLER_PATTERN}{{0,2}}\s+{METRIC_PATTERN}\b", re.IGNORECASE)
MAX_METRIC_DISTANCE_CHARS = 80  # characters, in which a figure is called by its name
WORD = re.compile("[a-z]+")
# A sentence with such a word wishes, supposes, quotes or sums up; it does not report.
HEDGE_WORDS = frozenset(
    WORD.findall(
        "if should would could can might may will want hope hoping goal threshold least most above below than paper"
        " literature art sota try trying example eg until unless whether likely perhaps maybe probably chance let avg"
    )
)
HEDGE_STEMS = tuple(
    WORD.findall(
        "expect aim target exceed typical usual assum suppos guess estimat predict potential ideal default weight"
        " averag suggest"
    )
)
CHANGE_WORDS = frozenset(
    WORD.findall("by gap faster times factor ratio relative speed speedup better worse half twice")
)
CHANGE_STEMS = ("gain", "improv", "increas", "decreas", "reduc", "drop", "differ")
SENTENCE_END = re.compile(r"[.!?]\s|\n")
MARKUP = re.compile(r"```.*?(?:```|\Z)|\*\*|__|`", re.DOTALL)  # and what only makes words bold
PRINTED_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")
MAX_NUMBERS_FOR_PAIRS = 5_000  # numbers among which pairs are looked for

# What is the same figure said in another way: in percent, in thousands, as a share of what is wrong, before its root.
EQUIVALENT_FORMS: tuple[Callable[[float], float], ...] = (
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

    text: str
    digits: str
    value: float
    precision: float
    may_be_change: bool


def find_claims(text: str) -> Iterator[Claim]:
    """The figures that a text reports as results; whole numbers below a thousand may be anything and do not count."""
    text = MARKUP.sub("", text)
    for found in CLAIMED_NUMBER.finditer(text):
        said = found[0].rstrip()
        digits = said.rstrip("% ").replace(",", "")
        if "." not in digits and "%" not in said and len(digits) < 4:
            continue
        place = _named_span(text, found.start(), found.start() + len(said))
        sentence = _enclosing_sentence(text, *place) if place else "?"
        if place and "?" not in sentence and not _contains_any(sentence, HEDGE_WORDS, HEDGE_STEMS):
            words = " ".join(text[slice(*place)].split())
            yield Claim(
                words,
                digits,
                float(digits),
                _last_digit_unit(digits),
                _contains_any(sentence, CHANGE_WORDS, CHANGE_STEMS),
            )


def _contains_any(sentence: str, words: frozenset[str], stems: tuple[str, ...]) -> bool:
    return any(
        word in words or word.startswith(stems)
        for word in WORD.findall(sentence.lower().replace("e.g.", "eg"))
    )


def _named_span(text: str, start: int, end: int) -> tuple[int, int] | None:
    """From where to where a figure and its name go, if it has one."""
    first = max(0, start - MAX_METRIC_DISTANCE_CHARS)
    if before := METRIC_BEFORE.search(text[first:start]):
        return first + before.start(), end
    after = METRIC_AFTER.match(text, end, end + MAX_METRIC_DISTANCE_CHARS)
    return (start, after.end()) if after else None


def _enclosing_sentence(text: str, start: int, end: int) -> str:
    before = [place.end() for place in SENTENCE_END.finditer(text, max(0, start - 500), start)]
    after = SENTENCE_END.search(text, end)
    return text[before[-1] if before else max(0, start - 500) : after.end() if after else len(text)]


def _last_digit_unit(digits: str) -> float:
    """One in the last place: a figure may have been rounded, or cut."""
    mantissa, _, exponent = digits.lower().partition("e")
    return float(f"1e{int(exponent or 0) - len(mantissa.partition('.')[2])}")


def extract_numbers(text: str) -> set[float]:
    """All the numbers in a text."""
    return {float(found.replace(",", "")) for found in PRINTED_NUMBER.findall(text)}


def is_supported(claim: Claim, ordered: Sequence[float]) -> bool:
    """Whether a figure is among numbers in order, at its own precision, in one of its forms or as a change of two."""
    low, high = claim.value - claim.precision, claim.value + claim.precision
    if any(_contains_value_between(ordered, form(low), form(high)) for form in EQUIVALENT_FORMS):
        return True
    return claim.may_be_change and any(
        _contains_value_between(ordered, *ends)
        for ends in _pair_ranges(low, high, ordered[-MAX_NUMBERS_FOR_PAIRS:])
    )


def _pair_ranges(low: float, high: float, ordered: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Where a second number must lie, for each first one, if the claim is their difference or their ratio."""
    for one in ordered:
        yield one + low, one + high
        yield one * low, one * high
        for share in (1.0, 100.0):  # a part of the first, also in percent
            yield one * (1 - high / share), one * (1 - low / share)
            yield one * (1 + low / share), one * (1 + high / share)


def _contains_value_between(ordered: Sequence[float], one: float, other: float) -> bool:
    low, high = sorted((one, other))
    slack = 1e-9 * max(abs(low), abs(high))
    place = bisect_left(ordered, low - slack)
    return place < len(ordered) and ordered[place] <= high + slack
