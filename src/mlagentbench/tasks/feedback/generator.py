"""Makes essays of known quality: passages of good prose, damaged in six ways, and the scores a rater gives them."""

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

QUALITIES = ("cohesion", "syntax", "vocabulary", "phraseology", "grammar", "conventions")
MEANS = (3.15, 3.05, 3.25, 3.1, 3.05, 3.1)  # of the true qualities, on the scale from 1 to 5
SPREAD = 0.61  # their standard deviation
SHARED = 0.78  # how much of their variance is one ability behind all six
HALO, SLIP = 0.12, 0.17  # what raters add: an impression that colours all six scores, and an error in each
TASTE = 0.3  # how much writers differ in which faults of one kind they make
STEEPNESS = 2.2  # faults grow with this power of the distance to a perfect score
INTENSITY = 1.4  # and have this rate where the score is 3
WORDS = (150, 340)  # of a passage
SENTENCE = (4, 70)  # words; what is outside is a heading, a table, or a sentence of another century
KNOWN_RUN = 10  # words in a row that no two sentences share, so that no quotation is in two essays
COMMON = 1200  # the most frequent words, which count as plain


class Dice:
    """Random numbers from a text, the same in every version of Python and on every machine."""

    def __init__(self, seed: str) -> None:
        self.next = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.next() < probability

    def below(self, count: int) -> int:
        """A whole number from 0 to count - 1."""
        return int(self.next() * count)

    def pick(self, options: Sequence[str]) -> str:
        """One of the options."""
        return options[self.below(len(options))]

    def normal(self) -> float:
        """A number from the standard normal distribution."""
        return NormalDist().inv_cdf(min(max(self.next(), 1e-12), 1 - 1e-12))


# From speeches to passages

NOTE = re.compile(r"\[[^\]]*\]|\((?:applause|laughter)[^)]*\)", re.IGNORECASE)
ASCII = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "—": "-", "–": "-", "‑": "-"})
SHORT = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|No|Gen|Gov|Sen|Rep|Hon|Jr|Sr|Col|Capt|vs|etc)|\b[A-Z])\.$")


def sentences(text: str) -> list[str]:
    """The sentences of a speech, without the stenographer's notes, in plain ASCII."""
    text = re.sub(r"\s*--+\s*", " - ", NOTE.sub(" ", text).translate(ASCII))
    text = re.sub(r"\.(?:\s*\.)+", ".", text)
    found, begun = [], ""
    for piece in re.split(r"(?:(?<=[.!?])|(?<=[.!?]\"))\s+(?=[\"']?[A-Z])", " ".join(text.split())):
        begun = f"{begun} {piece}".strip()
        if not SHORT.search(piece):
            found.append(begun)
            begun = ""
    return found


def usable(sentence: str) -> bool:
    """Whether a sentence is prose of an ordinary length."""
    return (
        SENTENCE[0] <= len(sentence.split()) <= SENTENCE[1]
        and sentence.isascii()
        and re.match('"?[A-Z]', sentence) is not None
        and re.search('[.!?]"?$', sentence) is not None
        and not re.search(r"[()\[\]*_]|(?:\d\D+){4}", sentence)
        and sentence.count('"') % 2 == 0
    )


def passages(speeches: Iterable[str], dice: Dice) -> list[list[str]]:
    """Speeches, cut into passages of neighbouring sentences; no sentence is in two, nor is a long quotation."""
    known: set[str] = set()
    cut = []
    for speech in speeches:
        passage: list[str] = []
        wanted = WORDS[0] + dice.below(WORDS[1] - WORDS[0])
        for sentence in filter(usable, sentences(speech)):
            plain = re.findall(r"[a-z']+", sentence.lower())
            runs = {" ".join(plain[at : at + KNOWN_RUN]) for at in range(max(1, len(plain) - KNOWN_RUN + 1))}
            if runs & known:
                continue
            known |= runs
            passage.append(sentence)
            if sum(len(each.split()) for each in passage) >= wanted:
                cut.append(passage)
                passage = []
                wanted = WORDS[0] + dice.below(WORDS[1] - WORDS[0])
    return cut


# The six kinds of damage. Every one takes words or sentences, a rate (about 1 for a middling writer) and dice.


@dataclass
class Word:
    """A word, and the punctuation around it."""

    head: str
    core: str
    tail: str

    @property
    def plain(self) -> bool:
        """Whether it is an ordinary word in lower case."""
        return self.core.isalpha() and self.core.islower()


Sentence = list[Word]
Fault = Callable[[list[Sentence], float, Dice], None]


def read(sentence: str) -> Sentence:
    """The words of a sentence."""
    found = [re.fullmatch(r"(\W*)(.*?)(\W*)", word) for word in sentence.split()]
    return [Word(*match.groups()) for match in found if match]


def written(sentence: Sentence) -> str:
    """The sentence as text."""
    return " ".join(
        word.head + word.core + word.tail for word in sentence if word.head + word.core + word.tail
    )


def capital(word: Word) -> None:
    """Begin a sentence with this word."""
    word.core = word.core[:1].upper() + word.core[1:]


def small(word: Word) -> None:
    """Begin no sentence with this word; names and I keep their capital."""
    if word.core.lower() in STARTERS:
        word.core = word.core.lower()


def remove(sentence: Sentence, at: int) -> None:
    """Take a word out, and leave its punctuation to the word before."""
    word = sentence.pop(at)
    if at:
        sentence[at - 1].tail += word.tail
    elif sentence:
        capital(sentence[0])


STARTERS = {
    "the", "a", "an", "this", "that", "these", "those", "it", "they", "we", "he", "she", "you", "there", "here", "in",
    "on", "at", "by", "for", "from", "with", "to", "of", "and", "but", "or", "so", "yet", "if", "when", "while", "as",
    "since", "because", "although", "though", "after", "before", "until", "unless", "no", "not", "all", "some", "many",
    "most", "such", "each", "every", "our", "their", "its", "his", "her", "my", "your", "what", "which", "who", "how",
    "why", "where", "let", "today", "now", "then", "thus",
}  # fmt: skip
CONNECTIVES = (
    "But", "And", "Yet", "So", "Thus", "Therefore", "However", "Moreover", "Furthermore", "Indeed", "Nevertheless",
    "Accordingly", "Finally", "First", "Second", "Also", "Still", "Then",
)  # fmt: skip
MISPLACED = (
    "However", "Therefore", "Moreover", "For example", "On the other hand", "In conclusion", "Firstly", "Also",
    "Because of that", "Besides", "So then",
)  # fmt: skip


def displaced(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Sentences that stand where they do not follow."""
    for at in range(len(text)):
        if dice.chance(0.22 * rate):
            text.insert(dice.below(len(text)), text.pop(at))


def disconnected(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Connectives that are missing."""
    for sentence in text:
        if sentence[0].core in CONNECTIVES and len(sentence) > 3 and dice.chance(0.5 * rate):
            remove(sentence, 0)


def misconnected(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Connectives that connect nothing."""
    for sentence in text:
        if dice.chance(0.12 * rate):
            small(sentence[0])
            *before, last = dice.pick(MISPLACED).split()
            sentence[:0] = [*(Word("", word, "") for word in before), Word("", last, ",")]


def vague_reference(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Subjects replaced by pronouns that refer to nothing."""
    for sentence in text:
        for at in range(len(sentence) - 2):
            one, other = sentence[at : at + 2]
            noun = one.core.lower() in ("the", "this", "our") and other.plain and not one.tail
            if noun and dice.chance(0.03 * rate):
                sentence[at : at + 2] = [Word("", dice.pick(("it", "they", "this", "that")), other.tail)]
                if one.core[0].isupper():
                    capital(sentence[at])
                break


def swapped(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Neighbouring words in the wrong order."""
    for sentence in text:
        for at in range(1, len(sentence) - 1):
            one, other = sentence[at], sentence[at + 1]
            if one.plain and other.plain and not one.tail and dice.chance(0.016 * rate):
                one.core, other.core = other.core, one.core


def strayed(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Words far from their place."""
    for sentence in text:
        for at in range(1, len(sentence) - 6):
            if sentence[at].plain and not sentence[at].tail and dice.chance(0.009 * rate):
                sentence.insert(at + 2 + dice.below(4), sentence.pop(at))


def run_on(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Sentences that do not end."""
    at = 0
    while at < len(text) - 1:
        if dice.chance(0.14 * rate) and len(text[at]) < 60:
            text[at][-1].tail = dice.pick((",", "", " and", ", and", ", so"))
            small(text[at + 1][0])
            text[at] += text.pop(at + 1)
        else:
            at += 1


def fragments(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Sentences that end too early."""
    at = 0
    while at < len(text):
        sentence = text[at]
        breaks = [place for place in range(2, len(sentence) - 2) if sentence[place].tail == ","]
        if breaks and dice.chance(0.16 * rate):
            place = breaks[dice.below(len(breaks))]
            sentence[place].tail = "."
            text[at : at + 1] = [sentence[: place + 1], sentence[place + 1 :]]
            capital(text[at + 1][0])
            at += 1
        at += 1


DROPPED = ("we", "it", "they", "he", "is", "are", "be", "been", "which", "who", "that")


def subjectless(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Subjects and auxiliaries that are missing."""
    for sentence in text:
        for at in reversed(range(1, len(sentence) - 1)):
            if sentence[at].core in DROPPED and dice.chance(0.06 * rate):
                remove(sentence, at)


VAGUE = {
    "ly": ("really", "very", "so much"),
    "ing": ("doing", "getting", "making", "having"),
    "ed": ("made", "did", "got", "put"),
    "s": ("things", "people", "ways", "stuff"),
    "": ("good", "big", "thing", "bad", "nice", "important", "something", "part"),
}


def vague(common: set[str]) -> Fault:
    """Rare words replaced by vague ones."""

    def fault(text: list[Sentence], rate: float, dice: Dice) -> None:
        for word in (word for sentence in text for word in sentence):
            if word.plain and len(word.core) > 4 and word.core not in common and dice.chance(0.14 * rate):
                word.core = dice.pick(
                    next(options for ending, options in VAGUE.items() if word.core.endswith(ending))
                )

    return fault


def repeated(common: set[str]) -> Fault:
    """Rare words replaced by words that were there before."""

    def fault(text: list[Sentence], rate: float, dice: Dice) -> None:
        used: list[str] = []
        for word in (word for sentence in text for word in sentence):
            if word.plain and len(word.core) > 4:
                if word.core not in common and used and dice.chance(0.11 * rate):
                    word.core = used[dice.below(min(len(used), 6))]
                else:
                    used.append(word.core)

    return fault


def padded(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Words that add nothing."""
    for sentence in text:
        for at in reversed(range(1, len(sentence))):
            if sentence[at].plain and len(sentence[at].core) > 5 and dice.chance(0.02 * rate):
                sentence.insert(at, Word("", dice.pick(("very", "really", "a lot", "so", "kind of")), ""))


PREPOSITIONS = {
    "in": ("on", "at", "into"),
    "on": ("in", "at", "over"),
    "at": ("in", "on", "to"),
    "for": ("to", "of", "since"),
    "to": ("for", "at", "in"),
    "of": ("from", "for", "about"),
    "with": ("by", "for", "of"),
    "by": ("with", "from", "for"),
    "from": ("of", "since", "by"),
    "about": ("of", "on", "for"),
    "into": ("in", "to", "at"),
    "upon": ("over", "in", "at"),
    "through": ("by", "along", "across"),
    "between": ("among", "within", "of"),
    "under": ("below", "in", "down"),
}
COLLOCATIONS = {
    "make": "do", "made": "done", "do": "make", "take": "get", "taken": "got", "give": "put", "given": "put",
    "great": "strong", "large": "wide", "high": "tall", "strong": "heavy", "full": "filled", "long": "far",
    "good": "well", "many": "much", "few": "little", "much": "many", "less": "fewer", "say": "tell",
    "hold": "catch", "keep": "stay", "meet": "find", "bring": "carry", "provide": "give out", "believe": "think on",
    "hope": "wish for", "increase": "grow up", "need": "have need", "continue": "keep on to",
    "reduce": "make small", "support": "be behind",
}  # fmt: skip
LITERAL = {
    ("such", "as"): "like as", ("as", "well"): "like also", ("more", "than"): "more that",
    ("at", "least"): "at less", ("in", "order"): "for", ("so", "that"): "for that",
    ("each", "other"): "one the other", ("no", "longer"): "not more", ("of", "course"): "of the course",
    ("must", "be"): "has to be", ("will", "be"): "is going be", ("should", "be"): "had better to be",
    ("have", "been"): "are been", ("has", "been"): "is been", ("there", "is"): "it has", ("there", "are"): "it has",
    ("we", "can"): "is possible we", ("we", "must"): "is need we", ("not", "only"): "not just only",
    ("those", "who"): "the ones that they", ("all", "of"): "the all of", ("a", "new"): "one new",
    ("the", "same"): "a same", ("i", "am"): "I have", ("as", "a"): "like a",
}  # fmt: skip


def prepositions(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Wrong prepositions."""
    for word in (word for sentence in text for word in sentence):
        if word.core in PREPOSITIONS and dice.chance(0.09 * rate):
            word.core = dice.pick(PREPOSITIONS[word.core])


def collocations(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Words that do not go together."""
    for word in (word for sentence in text for word in sentence):
        if word.core in COLLOCATIONS and dice.chance(0.3 * rate):
            word.core = COLLOCATIONS[word.core]


def literal(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Phrases as another language would put them."""
    for sentence in text:
        for at in range(1, len(sentence) - 1):
            pair = (sentence[at].core.lower(), sentence[at + 1].core)
            if pair in LITERAL and not sentence[at].tail and dice.chance(0.35 * rate):
                sentence[at].core, _, sentence[at + 1].core = LITERAL[pair].partition(" ")


AGREEMENT = {
    "is": "are", "are": "is", "was": "were", "were": "was", "has": "have", "have": "has", "does": "do", "do": "does",
    "this": "these", "these": "this", "that": "those", "those": "that", "am": "is",
}  # fmt: skip
MODALS = ("must", "can", "will", "should", "may", "could", "would", "shall", "might")


def agreement(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Verbs and pronouns of the wrong number."""
    for word in (word for sentence in text for word in sentence):
        if word.core in AGREEMENT and dice.chance(0.12 * rate):
            word.core = AGREEMENT[word.core]


def articles(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Articles that are missing, or wrong."""
    for sentence in text:
        for at in reversed(range(1, len(sentence) - 1)):
            if sentence[at].core in ("the", "a", "an") and dice.chance(0.1 * rate):
                if dice.chance(0.65):
                    remove(sentence, at)
                else:
                    sentence[at].core = "a" if sentence[at].core == "the" else "the"


def endings(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Plurals and tenses without their ending, or with one too many."""
    for word in (word for sentence in text for word in sentence):
        if not word.plain or len(word.core) < 5:
            continue
        if word.core.endswith("s") and not word.core.endswith(("ss", "us", "is")):
            if dice.chance(0.1 * rate):
                word.core = word.core[:-1]
        elif word.core.endswith("ed") and not word.core.endswith("eed"):
            if dice.chance(0.12 * rate):
                word.core = word.core[:-2] + dice.pick(("", "ing", "e"))
        elif word.core.endswith(("ment", "tion", "ness", "ance", "ence", "ity")) and dice.chance(0.08 * rate):
            word.core = word.core[:-1] + "ies" if word.core.endswith("y") else word.core + "s"


def modals(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Verbs in the wrong form after can, must and to."""
    for sentence in text:
        for one, other in pairwise(sentence):
            if one.core in MODALS and not one.tail and other.plain and dice.chance(0.25 * rate):
                other.core = "to " + other.core
            elif one.core == "to" and other.plain and len(other.core) > 3 and dice.chance(0.03 * rate):
                other.core = other.core.rstrip("e") + "ing"


SOUNDS = (
    ("ie", "ei"), ("ei", "ie"), ("tion", "sion"), ("ough", "uff"), ("ence", "ance"), ("ance", "ence"),
    ("able", "ible"), ("ll", "l"), ("ss", "s"), ("tt", "t"), ("mm", "m"), ("cc", "c"), ("ph", "f"), ("wh", "w"),
    ("ea", "ee"), ("ght", "gt"), ("ou", "u"), ("ck", "k"), ("ai", "ei"), ("que", "k"), ("kn", "n"), ("ure", "er"),
    ("ful", "full"), ("ple", "pel"),
)  # fmt: skip
CONFUSED = {
    "their": "there", "there": "their", "its": "it's", "to": "too", "than": "then", "then": "than",
    "your": "you're", "which": "wich", "because": "becouse", "people": "peopel", "government": "goverment",
    "whole": "hole", "where": "were", "our": "are", "know": "no", "new": "knew", "by": "buy", "own": "on",
    "through": "threw", "great": "grate", "peace": "piece", "believe": "belive", "with": "whit", "from": "form",
    "right": "write", "until": "untill", "weather": "wether",
}  # fmt: skip


def misspelt(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Words written as they sound, or with letters lost, doubled or exchanged."""
    for word in (word for sentence in text for word in sentence):
        if word.core.isalpha() and len(word.core) > 3 and dice.chance(0.028 * rate):
            word.core = _misspelt(word.core, dice)


def _misspelt(word: str, dice: Dice) -> str:
    heard = [(right, wrong) for right, wrong in SOUNDS if right in word[1:]]
    if heard and dice.chance(0.6):
        right, wrong = heard[dice.below(len(heard))]
        return word[0] + word[1:].replace(right, wrong, 1)
    at = 1 + dice.below(len(word) - 2)
    return dice.pick(
        (
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + dice.pick("aeiou") + word[at + 1 :],
        )
    )


def confused(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Words that sound alike."""
    for word in (word for sentence in text for word in sentence):
        if word.core in CONFUSED and dice.chance(0.055 * rate):
            word.core = CONFUSED[word.core]


def uncapitalised(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Capitals that are missing, or too many."""
    for sentence in text:
        for at, word in enumerate(sentence):
            if word.core[:1].isupper() and dice.chance((0.14 if at else 0.1) * rate):
                word.core = word.core.lower()
            elif word.plain and len(word.core) > 5 and dice.chance(0.008 * rate):
                capital(word)


def unpunctuated(text: list[Sentence], rate: float, dice: Dice) -> None:
    """Commas, stops and apostrophes that are missing or too many."""
    for sentence in text:
        for word in sentence:
            if word.tail.startswith(",") and dice.chance(0.16 * rate):
                word.tail = word.tail[1:] or dice.pick(("", "", " ,"))
            elif word.tail in (".", "!", "?") and dice.chance(0.1 * rate):
                word.tail = dice.pick(("", "", ",", "..", " ."))
            elif "'" in word.core and dice.chance(0.35 * rate):
                word.core = word.core.replace("'", "")
            elif word.plain and not word.tail and dice.chance(0.008 * rate):
                word.tail = ","


# Essays


@dataclass(frozen=True)
class Essay:
    """A text, what the raters gave it, and what it truly deserves."""

    text: str
    scores: tuple[float, ...]
    true: tuple[float, ...]


def common_words(speeches: Iterable[str]) -> set[str]:
    """The plain words of the language."""
    counts = Counter(word for speech in speeches for word in re.findall(r"\b[a-z]+\b", speech))
    return set(sorted(counts, key=lambda word: (-counts[word], word))[:COMMON])


def essay(passage: Sequence[str], strangers: list[str], common: set[str], dice: Dice) -> Essay:
    """A passage as a writer of some ability would have put it; `strangers` slip in, and are used up."""
    ability = dice.normal()
    true = tuple(
        min(
            max(mean + SPREAD * (math.sqrt(SHARED) * ability + math.sqrt(1 - SHARED) * dice.normal()), 1.0),
            5.0,
        )
        for mean in MEANS
    )
    rates = dict(zip(QUALITIES, (INTENSITY * ((5 - score) / 2) ** STEEPNESS for score in true), strict=True))
    impression = HALO * dice.normal()
    scores = tuple(_half(score + impression + SLIP * dice.normal()) for score in true)

    text = [read(sentence) for sentence in passage]
    for at in range(len(text)):
        if strangers and dice.chance(0.07 * rates["cohesion"]):
            text[at] = read(strangers.pop())
    faults: dict[str, tuple[Fault, ...]] = {
        "cohesion": (displaced, disconnected, misconnected, vague_reference),
        "vocabulary": (vague(common), repeated(common), padded),
        "phraseology": (prepositions, collocations, literal),
        "grammar": (agreement, articles, endings, modals),
        "syntax": (swapped, strayed, subjectless, run_on, fragments),
        "conventions": (misspelt, confused, uncapitalised, unpunctuated),
    }
    for quality, kinds in faults.items():
        for fault in kinds:
            fault(text, rates[quality] * math.exp(TASTE * dice.normal() - TASTE**2 / 2), dice)
    return Essay(_paragraphs(text, rates["cohesion"], dice), scores, true)


def _half(score: float) -> float:
    return min(max(math.floor(2 * score + 0.5) / 2, 1.0), 5.0)


def _paragraphs(text: list[Sentence], rate: float, dice: Dice) -> str:
    """The sentences in paragraphs, of even length where the writer cares."""
    pieces: list[str] = []
    left = 4
    for sentence in text:
        if pieces:
            pieces.append(" " if left else "\n\n")
        if not left:
            left = 3 + dice.below(3)
            if dice.chance(0.2 * rate):
                left = 1 + dice.below(12)
        left -= 1
        pieces.append(written(sentence))
    return "".join(pieces)
