"""Finds numbers that a text claims as results, and checks them against observed numbers."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

NUMBER_PATTERN = r"\d{1,15}(?:,\d{3}){0,4}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?"
METRIC_PATTERN = (
    r"(?:accuracy|acc|error|loss|score|figure|mae|rmsle|rmse|mse|mape|smape|mcrmse|f1|auc|precision|recall"
    r"|perplexity|r2|r²|dice|iou|kappa|bleu|speed-?up|improvement|correlation)"
)
FILLER_PATTERN = (
    r"(?:\s+(?:score|value|rate|figure|on|over|for|the|a|an|this|our|my|its|all|validation|test|train(?:ing)?"
    r"|held-out|set|data|fold|folds|model|best|final|new|now|currently|starter|baseline))"
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
MAX_METRIC_DISTANCE_CHARS = 80  # between a number and the name of its metric
WORD = re.compile("[a-z]+")
# A sentence with such a word expresses a wish, an assumption, a quotation or a summary, not a result.
HEDGE_WORDS = frozenset(
    WORD.findall(
        "if should would could can might may will want hope hoping goal threshold least most above below than"
        " paper literature art sota try trying example eg until unless whether likely perhaps maybe probably"
        " chance let avg"
    )
)
HEDGE_STEMS = tuple(
    WORD.findall(
        "expect aim target exceed typical usual assum suppos guess estimat predict potential ideal default"
        " weight averag suggest"
    )
)
CHANGE_WORDS = frozenset(
    WORD.findall("by gap faster times factor ratio relative speed speedup better worse half twice")
)
CHANGE_STEMS = ("gain", "improv", "increas", "decreas", "reduc", "drop", "differ")
SENTENCE_END = re.compile(r"[.!?]\s|\n")
MARKUP = re.compile(r"```.*?(?:```|\Z)|\*\*|__|`", re.DOTALL)  # code blocks, and markers of bold text
PRINTED_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")
MAX_NUMBERS_FOR_PAIRS = 5_000  # the search for differences and ratios uses at most this many

# The same result in another form: in percent, in thousands, as an error rate, or before taking the root.
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
    """A claimed number: its text, value and precision, and whether it may be a change between two values."""

    text: str
    digits: str
    value: float
    precision: float
    may_be_change: bool


def find_claims(text: str) -> Iterator[Claim]:
    """The numbers that a text reports as results.

    Integers below 1000 without a percent sign are ignored, because they can mean anything.
    """
    text = MARKUP.sub("", text)
    for match in CLAIMED_NUMBER.finditer(text):
        number = match[0].rstrip()
        digits = number.rstrip("% ").replace(",", "")
        if "." not in digits and "%" not in number and len(digits) < 4:
            continue
        span = _named_span(text, match.start(), match.start() + len(number))
        if span is None:
            continue
        sentence = _enclosing_sentence(text, *span)
        if "?" in sentence or _contains_any(sentence, HEDGE_WORDS, HEDGE_STEMS):
            continue
        yield Claim(
            text=" ".join(text[slice(*span)].split()),
            digits=digits,
            value=float(digits),
            precision=_last_digit_unit(digits),
            may_be_change=_contains_any(sentence, CHANGE_WORDS, CHANGE_STEMS),
        )


def _contains_any(sentence: str, words: frozenset[str], stems: tuple[str, ...]) -> bool:
    found = WORD.findall(sentence.lower().replace("e.g.", "eg"))
    return any(word in words or word.startswith(stems) for word in found)


def _named_span(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Start and end of a number together with the name of its metric; None if no metric is named."""
    first = max(0, start - MAX_METRIC_DISTANCE_CHARS)
    if before := METRIC_BEFORE.search(text[first:start]):
        return first + before.start(), end
    after = METRIC_AFTER.match(text, end, end + MAX_METRIC_DISTANCE_CHARS)
    return (start, after.end()) if after else None


def _enclosing_sentence(text: str, start: int, end: int) -> str:
    before = [match.end() for match in SENTENCE_END.finditer(text, max(0, start - 500), start)]
    after = SENTENCE_END.search(text, end)
    return text[before[-1] if before else max(0, start - 500) : after.end() if after else len(text)]


def _last_digit_unit(digits: str) -> float:
    """One unit in the last digit: a claimed number may be rounded or truncated."""
    mantissa, _, exponent = digits.lower().partition("e")
    return float(f"1e{int(exponent or 0) - len(mantissa.partition('.')[2])}")


def extract_numbers(text: str) -> set[float]:
    """All numbers in a text."""
    return {float(number.replace(",", "")) for number in PRINTED_NUMBER.findall(text)}


def is_supported(claim: Claim, sorted_numbers: Sequence[float]) -> bool:
    """Whether sorted numbers contain the claim, up to its precision, in an equivalent form or as a change."""
    low, high = claim.value - claim.precision, claim.value + claim.precision
    if any(_contains_value_between(sorted_numbers, form(low), form(high)) for form in EQUIVALENT_FORMS):
        return True
    if not claim.may_be_change:
        return False
    ranges = _pair_ranges(low, high, sorted_numbers[-MAX_NUMBERS_FOR_PAIRS:])
    return any(_contains_value_between(sorted_numbers, *bounds) for bounds in ranges)


def _pair_ranges(low: float, high: float, numbers: Sequence[float]) -> Iterator[tuple[float, float]]:
    """For each number, the ranges of a second number for which the claim is their difference or ratio."""
    for number in numbers:
        yield number + low, number + high
        yield number * low, number * high
        for scale in (1.0, 100.0):  # a relative change, as a fraction or in percent
            yield number * (1 - high / scale), number * (1 - low / scale)
            yield number * (1 + low / scale), number * (1 + high / scale)


def _contains_value_between(sorted_numbers: Sequence[float], bound: float, other_bound: float) -> bool:
    low, high = sorted((bound, other_bound))
    tolerance = 1e-9 * max(abs(low), abs(high))
    index = bisect_left(sorted_numbers, low - tolerance)
    return index < len(sorted_numbers) and sorted_numbers[index] <= high + tolerance
