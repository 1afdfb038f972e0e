"""Generates texts of known quality: passages of prose, corrupted in six ways, with simulated raters."""

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

QUALITIES = ("cohesion", "syntax", "vocabulary", "phraseology", "grammar", "conventions")
QUALITY_MEANS = (3.15, 3.05, 3.25, 3.1, 3.05, 3.1)  # on the scale from 1 to 5
QUALITY_SD = 0.61
SHARED_VARIANCE = 0.78  # share of the variance that all six qualities have in common
HALO_SD, RATER_ERROR_SD = 0.12, 0.17  # of raters: a common impression of all six scores, and an error in each
ERROR_KIND_SD = 0.3  # how much writers differ in which errors of one kind they make
ERROR_RATE_POWER = 2.2  # error rates grow with this power of the distance to a perfect score
ERROR_RATE_AT_3 = 1.4  # rate of errors at a score of 3
PASSAGE_WORDS = (150, 340)  # at least and at most
SENTENCE_WORDS = (4, 70)  # shorter or longer ones are headings, tables, or archaic sentences
MAX_SHARED_WORDS = 10  # no two sentences share a run of this length, so no quotation is in two texts
COMMON_WORDS = 1200  # number of the most frequent words
# Kinds of errors whose rate is that of the quality; writers differ in the rates of all other kinds.
FOREIGN_SENTENCES, UNEVEN_PARAGRAPHS = "foreign sentences", "uneven paragraphs"


@dataclass(frozen=True)
class ErrorCount:
    """How often errors of one kind and weight could occur in a text, and how often they did."""

    quality: str
    kind: str
    weight: float
    opportunities: int
    errors: int


class PortableRandom:
    """Random numbers from a text seed, the same in every version of Python and on every machine."""

    def __init__(self, seed: str) -> None:
        self.uniform = random.Random(seed).random
        self.error_counts: dict[float, tuple[int, int]] = {}  # weight: opportunities and errors

    def bernoulli(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.uniform() < probability

    def error_occurs(self, weight: float, rate: float) -> bool:
        """Return True with probability `weight * rate`, and count the opportunity and the error."""
        occurs = self.bernoulli(weight * rate)
        opportunities, errors = self.error_counts.get(weight, (0, 0))
        self.error_counts[weight] = (opportunities + 1, errors + occurs)
        return occurs

    def take_error_counts(self, quality: str, kind: str) -> list["ErrorCount"]:
        """Return what was counted since the last call, as errors of this kind."""
        counts, self.error_counts = self.error_counts, {}
        return [ErrorCount(quality, kind, weight, *count) for weight, count in counts.items()]

    def randbelow(self, count: int) -> int:
        """Draw an integer from 0 to count - 1."""
        return int(self.uniform() * count)

    def choice(self, options: Sequence[str]) -> str:
        """Draw one of the options."""
        return options[self.randbelow(len(options))]

    def normal(self) -> float:
        """Draw a standard normal number."""
        return NormalDist().inv_cdf(min(max(self.uniform(), 1e-12), 1 - 1e-12))


# From speeches to passages

STENOGRAPHER_NOTE = re.compile(r"\[[^\]]*\]|\((?:applause|laughter)[^)]*\)", re.IGNORECASE)
TO_ASCII = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "—": "-", "–": "-", "‑": "-"})
ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|St|No|Gen|Gov|Sen|Rep|Hon|Jr|Sr|Col|Capt|vs|etc)|\b[A-Z])\.$"
)


def split_sentences(text: str) -> list[str]:
    """Split a speech into sentences, without the stenographer's notes, in plain ASCII."""
    text = re.sub(r"\s*--+\s*", " - ", STENOGRAPHER_NOTE.sub(" ", text).translate(TO_ASCII))
    text = re.sub(r"\.(?:\s*\.)+", ".", text)
    result, pending = [], ""
    for piece in re.split(r"(?:(?<=[.!?])|(?<=[.!?]\"))\s+(?=[\"']?[A-Z])", " ".join(text.split())):
        pending = f"{pending} {piece}".strip()
        if not ABBREVIATION.search(piece):
            result.append(pending)
            pending = ""
    return result


def is_usable(sentence: str) -> bool:
    """Whether a sentence is prose of ordinary length."""
    return (
        SENTENCE_WORDS[0] <= len(sentence.split()) <= SENTENCE_WORDS[1]
        and sentence.isascii()
        and re.match('"?[A-Z]', sentence) is not None
        and re.search('[.!?]"?$', sentence) is not None
        and not re.search(r"[()\[\]*_]|(?:\d\D+){4}", sentence)
        and sentence.count('"') % 2 == 0
    )


def cut_passages(speeches: Iterable[str], rng: PortableRandom) -> list[list[str]]:
    """Cut speeches into passages of consecutive sentences; no long run of words is in two of them."""
    known_runs: set[str] = set()
    found_passages = []
    for speech in speeches:
        passage: list[str] = []
        target_words = PASSAGE_WORDS[0] + rng.randbelow(PASSAGE_WORDS[1] - PASSAGE_WORDS[0])
        for sentence in filter(is_usable, split_sentences(speech)):
            words = re.findall(r"[a-z']+", sentence.lower())
            runs = {
                " ".join(words[index : index + MAX_SHARED_WORDS])
                for index in range(max(1, len(words) - MAX_SHARED_WORDS + 1))
            }
            if runs & known_runs:
                continue
            known_runs |= runs
            passage.append(sentence)
            if sum(len(part.split()) for part in passage) >= target_words:
                found_passages.append(passage)
                passage = []
                target_words = PASSAGE_WORDS[0] + rng.randbelow(PASSAGE_WORDS[1] - PASSAGE_WORDS[0])
    return found_passages


# The six kinds of corruption. Each takes a text, a rate (about 1 for an average writer) and a random source.


@dataclass
class Word:
    """A word and the punctuation around it."""

    head: str
    core: str
    tail: str

    @property
    def is_lowercase_word(self) -> bool:
        """Whether it is an ordinary word in lower case."""
        return self.core.isalpha() and self.core.islower()


Sentence = list[Word]
Corruption = Callable[[list[Sentence], float, PortableRandom], None]


def parse_sentence(sentence: str) -> Sentence:
    """Parse a sentence into words."""
    result = [re.fullmatch(r"(\W*)(.*?)(\W*)", word) for word in sentence.split()]
    return [Word(*match.groups()) for match in result if match]


def format_sentence(sentence: Sentence) -> str:
    """Format a sentence as text."""
    return " ".join(
        word.head + word.core + word.tail for word in sentence if word.head + word.core + word.tail
    )


def capitalize_word(word: Word) -> None:
    """Capitalize the word, to begin a sentence with it."""
    word.core = word.core[:1].upper() + word.core[1:]


def lowercase_starter(word: Word) -> None:
    """Lowercase the word if it only had a capital as the first word; names and I keep theirs."""
    if word.core.lower() in STARTERS:
        word.core = word.core.lower()


def remove_word(sentence: Sentence, index: int) -> None:
    """Remove a word, and move its punctuation to the word before."""
    word = sentence.pop(index)
    if index:
        sentence[index - 1].tail += word.tail
    elif sentence:
        capitalize_word(sentence[0])


STARTERS = {
    "the", "a", "an", "this", "that", "these", "those", "it", "they", "we", "he", "she", "you", "there",
    "here", "in", "on", "at", "by", "for", "from", "with", "to", "of", "and", "but", "or", "so", "yet",
    "if", "when", "while", "as", "since", "because", "although", "though", "after", "before", "until",
    "unless", "no", "not", "all", "some", "many", "most", "such", "each", "every", "our", "their", "its",
    "his", "her", "my", "your", "what", "which", "who", "how", "why", "where", "let", "today", "now",
    "then", "thus",
}  # fmt: skip
CONNECTIVES = (
    "But", "And", "Yet", "So", "Thus", "Therefore", "However", "Moreover", "Furthermore", "Indeed",
    "Nevertheless", "Accordingly", "Finally", "First", "Second", "Also", "Still", "Then",
)  # fmt: skip
MISPLACED = (
    "However", "Therefore", "Moreover", "For example", "On the other hand", "In conclusion", "Firstly",
    "Also", "Because of that", "Besides", "So then",
)  # fmt: skip


def move_sentences(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Move sentences to where they do not follow."""
    for index in range(len(text)):
        if rng.error_occurs(0.22, rate):
            text.insert(rng.randbelow(len(text)), text.pop(index))


def drop_connectives(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Drop connectives."""
    for sentence in text:
        if sentence[0].core in CONNECTIVES and len(sentence) > 3 and rng.error_occurs(0.5, rate):
            remove_word(sentence, 0)


def insert_connectives(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Insert connectives that connect nothing."""
    for sentence in text:
        if rng.error_occurs(0.12, rate):
            lowercase_starter(sentence[0])
            *leading_words, last = rng.choice(MISPLACED).split()
            sentence[:0] = [*(Word("", word, "") for word in leading_words), Word("", last, ",")]


def replace_subjects(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Replace subjects by pronouns that refer to nothing."""
    for sentence in text:
        for index in range(len(sentence) - 2):
            first, second = sentence[index : index + 2]
            noun = (
                first.core.lower() in ("the", "this", "our") and second.is_lowercase_word and not first.tail
            )
            if noun and rng.error_occurs(0.03, rate):
                sentence[index : index + 2] = [
                    Word("", rng.choice(("it", "they", "this", "that")), second.tail)
                ]
                if first.core[0].isupper():
                    capitalize_word(sentence[index])
                break


def swap_words(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Swap neighbouring words."""
    for sentence in text:
        for index in range(1, len(sentence) - 1):
            first, second = sentence[index], sentence[index + 1]
            if (
                first.is_lowercase_word
                and second.is_lowercase_word
                and not first.tail
                and rng.error_occurs(0.016, rate)
            ):
                first.core, second.core = second.core, first.core


def move_words(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Move words away from their position."""
    for sentence in text:
        for index in range(1, len(sentence) - 6):
            if (
                sentence[index].is_lowercase_word
                and not sentence[index].tail
                and rng.error_occurs(0.009, rate)
            ):
                sentence.insert(index + 2 + rng.randbelow(4), sentence.pop(index))


def join_sentences(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Join sentences into run-ons."""
    index = 0
    while index < len(text) - 1:
        if rng.error_occurs(0.14, rate) and len(text[index]) < 60:
            text[index][-1].tail = rng.choice((",", "", " and", ", and", ", so"))
            lowercase_starter(text[index + 1][0])
            text[index] += text.pop(index + 1)
        else:
            index += 1


def split_at_commas(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Split sentences into fragments at commas."""
    index = 0
    while index < len(text):
        sentence = text[index]
        breaks = [
            break_index for break_index in range(2, len(sentence) - 2) if sentence[break_index].tail == ","
        ]
        if breaks and rng.error_occurs(0.16, rate):
            break_index = breaks[rng.randbelow(len(breaks))]
            sentence[break_index].tail = "."
            text[index : index + 1] = [sentence[: break_index + 1], sentence[break_index + 1 :]]
            capitalize_word(text[index + 1][0])
            index += 1
        index += 1


DROPPED = ("we", "it", "they", "he", "is", "are", "be", "been", "which", "who", "that")


def drop_subjects(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Drop subjects and auxiliaries."""
    for sentence in text:
        for index in reversed(range(1, len(sentence) - 1)):
            if sentence[index].core in DROPPED and rng.error_occurs(0.06, rate):
                remove_word(sentence, index)


VAGUE = {
    "ly": ("really", "very", "so much"),
    "ing": ("doing", "getting", "making", "having"),
    "ed": ("made", "did", "got", "put"),
    "s": ("things", "people", "ways", "stuff"),
    "": ("good", "big", "thing", "bad", "nice", "important", "something", "part"),
}


def make_vague_words(common: set[str]) -> Corruption:
    """Return a corruption that replaces rare words by vague ones."""

    def replace_by_vague_words(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
        for word in (word for sentence in text for word in sentence):
            if (
                word.is_lowercase_word
                and len(word.core) > 4
                and word.core not in common
                and rng.error_occurs(0.14, rate)
            ):
                word.core = rng.choice(
                    next(options for ending, options in VAGUE.items() if word.core.endswith(ending))
                )

    return replace_by_vague_words


def make_repeated_words(common: set[str]) -> Corruption:
    """Return a corruption that replaces rare words by earlier words."""

    def repeat_words(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
        used: list[str] = []
        for word in (word for sentence in text for word in sentence):
            if word.is_lowercase_word and len(word.core) > 4:
                if word.core not in common and used and rng.error_occurs(0.11, rate):
                    word.core = used[rng.randbelow(min(len(used), 6))]
                else:
                    used.append(word.core)

    return repeat_words


def insert_fillers(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Insert filler words."""
    for sentence in text:
        for index in reversed(range(1, len(sentence))):
            if (
                sentence[index].is_lowercase_word
                and len(sentence[index].core) > 5
                and rng.error_occurs(0.02, rate)
            ):
                sentence.insert(index, Word("", rng.choice(("very", "really", "a lot", "so", "kind of")), ""))


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
    "make": "do", "made": "done", "do": "make", "take": "get", "taken": "got", "give": "put",
    "given": "put", "great": "strong", "large": "wide", "high": "tall", "strong": "heavy", "full": "filled",
    "long": "far", "good": "well", "many": "much", "few": "little", "much": "many", "less": "fewer",
    "say": "tell", "hold": "catch", "keep": "stay", "meet": "find", "bring": "carry", "provide": "give out",
    "believe": "think on", "hope": "wish for", "increase": "grow up", "need": "have need",
    "continue": "keep on to", "reduce": "make small", "support": "be behind",
}  # fmt: skip
LITERAL = {
    ("such", "as"): "like as", ("as", "well"): "like also", ("more", "than"): "more that",
    ("at", "least"): "at less", ("in", "order"): "for", ("so", "that"): "for that",
    ("each", "other"): "one the other", ("no", "longer"): "not more", ("of", "course"): "of the course",
    ("must", "be"): "has to be", ("will", "be"): "is going be", ("should", "be"): "had better to be",
    ("have", "been"): "are been", ("has", "been"): "is been", ("there", "is"): "it has",
    ("there", "are"): "it has", ("we", "can"): "is possible we", ("we", "must"): "is need we",
    ("not", "only"): "not just only", ("those", "who"): "the ones that they", ("all", "of"): "the all of",
    ("a", "new"): "one new", ("the", "same"): "a same", ("i", "am"): "I have", ("as", "a"): "like a",
}  # fmt: skip


def replace_prepositions(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Replace prepositions by wrong ones."""
    for word in (word for sentence in text for word in sentence):
        if word.core in PREPOSITIONS and rng.error_occurs(0.09, rate):
            word.core = rng.choice(PREPOSITIONS[word.core])


def replace_collocations(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Replace words so that they no longer collocate."""
    for word in (word for sentence in text for word in sentence):
        if word.core in COLLOCATIONS and rng.error_occurs(0.3, rate):
            word.core = COLLOCATIONS[word.core]


def replace_phrases(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Replace phrases by literal translations from another language."""
    for sentence in text:
        for index in range(1, len(sentence) - 1):
            pair = (sentence[index].core.lower(), sentence[index + 1].core)
            if pair in LITERAL and not sentence[index].tail and rng.error_occurs(0.35, rate):
                sentence[index].core, _, sentence[index + 1].core = LITERAL[pair].partition(" ")


AGREEMENT = {
    "is": "are", "are": "is", "was": "were", "were": "was", "has": "have", "have": "has", "does": "do",
    "do": "does", "this": "these", "these": "this", "that": "those", "those": "that", "am": "is",
}  # fmt: skip
MODALS = ("must", "can", "will", "should", "may", "could", "would", "shall", "might")


def break_agreement(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Give verbs and pronouns the wrong number."""
    for word in (word for sentence in text for word in sentence):
        if word.core in AGREEMENT and rng.error_occurs(0.12, rate):
            word.core = AGREEMENT[word.core]


def break_articles(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Drop or replace articles."""
    for sentence in text:
        for index in reversed(range(1, len(sentence) - 1)):
            if sentence[index].core in ("the", "a", "an") and rng.error_occurs(0.1, rate):
                if rng.bernoulli(0.65):
                    remove_word(sentence, index)
                else:
                    sentence[index].core = "a" if sentence[index].core == "the" else "the"


def break_endings(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Drop or add endings of plurals and tenses."""
    for word in (word for sentence in text for word in sentence):
        if not word.is_lowercase_word or len(word.core) < 5:
            continue
        if word.core.endswith("s") and not word.core.endswith(("ss", "us", "is")):
            if rng.error_occurs(0.1, rate):
                word.core = word.core[:-1]
        elif word.core.endswith("ed") and not word.core.endswith("eed"):
            if rng.error_occurs(0.12, rate):
                word.core = word.core[:-2] + rng.choice(("", "ing", "e"))
        elif word.core.endswith(("ment", "tion", "ness", "ance", "ence", "ity")) and rng.error_occurs(
            0.08, rate
        ):
            word.core = word.core[:-1] + "ies" if word.core.endswith("y") else word.core + "s"


def break_verb_forms(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Put verbs into the wrong form after modals and to."""
    for sentence in text:
        for first, second in pairwise(sentence):
            if (
                first.core in MODALS
                and not first.tail
                and second.is_lowercase_word
                and rng.error_occurs(0.25, rate)
            ):
                second.core = "to " + second.core
            elif (
                first.core == "to"
                and second.is_lowercase_word
                and len(second.core) > 3
                and rng.error_occurs(0.03, rate)
            ):
                second.core = second.core.rstrip("e") + "ing"


SOUNDS = (
    ("ie", "ei"), ("ei", "ie"), ("tion", "sion"), ("ough", "uff"), ("ence", "ance"), ("ance", "ence"),
    ("able", "ible"), ("ll", "l"), ("ss", "s"), ("tt", "t"), ("mm", "m"), ("cc", "c"), ("ph", "f"),
    ("wh", "w"), ("ea", "ee"), ("ght", "gt"), ("ou", "u"), ("ck", "k"), ("ai", "ei"), ("que", "k"),
    ("kn", "n"), ("ure", "er"), ("ful", "full"), ("ple", "pel"),
)  # fmt: skip
CONFUSED = {
    "their": "there", "there": "their", "its": "it's", "to": "too", "than": "then", "then": "than",
    "your": "you're", "which": "wich", "because": "becouse", "people": "peopel", "government": "goverment",
    "whole": "hole", "where": "were", "our": "are", "know": "no", "new": "knew", "by": "buy", "own": "on",
    "through": "threw", "great": "grate", "peace": "piece", "believe": "belive", "with": "whit",
    "from": "form", "right": "write", "until": "untill", "weather": "wether",
}  # fmt: skip


def misspell_words(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Misspell words as they sound, or with letters dropped, doubled or swapped."""
    for word in (word for sentence in text for word in sentence):
        if word.core.isalpha() and len(word.core) > 3 and rng.error_occurs(0.028, rate):
            word.core = _misspell(word.core, rng)


def _misspell(word: str, rng: PortableRandom) -> str:
    matching = [(right, wrong) for right, wrong in SOUNDS if right in word[1:]]
    if matching and rng.bernoulli(0.6):
        right, wrong = matching[rng.randbelow(len(matching))]
        return word[0] + word[1:].replace(right, wrong, 1)
    index = 1 + rng.randbelow(len(word) - 2)
    return rng.choice(
        (
            word[:index] + word[index + 1 :],
            word[:index] + word[index] + word[index:],
            word[:index] + word[index + 1] + word[index] + word[index + 2 :],
            word[:index] + rng.choice("aeiou") + word[index + 1 :],
        )
    )


def confuse_homophones(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Confuse words that sound alike."""
    for word in (word for sentence in text for word in sentence):
        if word.core in CONFUSED and rng.error_occurs(0.055, rate):
            word.core = CONFUSED[word.core]


def break_capitals(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Drop or add capitals."""
    for sentence in text:
        for index, word in enumerate(sentence):
            if word.core[:1].isupper() and rng.error_occurs(0.14 if index else 0.1, rate):
                word.core = word.core.lower()
            elif word.is_lowercase_word and len(word.core) > 5 and rng.error_occurs(0.008, rate):
                capitalize_word(word)


def break_punctuation(text: list[Sentence], rate: float, rng: PortableRandom) -> None:
    """Drop or add commas, full stops and apostrophes."""
    for sentence in text:
        for word in sentence:
            if word.tail.startswith(",") and rng.error_occurs(0.16, rate):
                word.tail = word.tail[1:] or rng.choice(("", "", " ,"))
            elif word.tail in (".", "!", "?") and rng.error_occurs(0.1, rate):
                word.tail = rng.choice(("", "", ",", "..", " ."))
            elif "'" in word.core and rng.error_occurs(0.35, rate):
                word.core = word.core.replace("'", "")
            elif word.is_lowercase_word and not word.tail and rng.error_occurs(0.008, rate):
                word.tail = ","


# Texts


@dataclass(frozen=True)
class GeneratedText:
    """A text, the scores of its raters, its true qualities, and the errors that were inserted."""

    text: str
    scores: tuple[float, ...]
    true_qualities: tuple[float, ...]
    error_counts: tuple[ErrorCount, ...]


def find_common_words(speeches: Iterable[str]) -> set[str]:
    """Return the most frequent words."""
    counts = Counter(word for speech in speeches for word in re.findall(r"\b[a-z]+\b", speech))
    return set(sorted(counts, key=lambda word: (-counts[word], word))[:COMMON_WORDS])


def generate_text(
    passage: Sequence[str], foreign_sentences: list[str], common: set[str], rng: PortableRandom
) -> GeneratedText:
    """Rewrite a passage as a writer of random ability; `foreign_sentences` are used up."""
    ability = rng.normal()
    true_qualities = tuple(
        min(
            max(
                mean
                + QUALITY_SD
                * (math.sqrt(SHARED_VARIANCE) * ability + math.sqrt(1 - SHARED_VARIANCE) * rng.normal()),
                1.0,
            ),
            5.0,
        )
        for mean in QUALITY_MEANS
    )
    rates = dict(
        zip(
            QUALITIES,
            (ERROR_RATE_AT_3 * ((5 - score) / 2) ** ERROR_RATE_POWER for score in true_qualities),
            strict=True,
        )
    )
    halo = HALO_SD * rng.normal()
    scores = tuple(_round_to_half(score + halo + RATER_ERROR_SD * rng.normal()) for score in true_qualities)

    text = [parse_sentence(sentence) for sentence in passage]
    for index in range(len(text)):
        if foreign_sentences and rng.error_occurs(0.07, rates["cohesion"]):
            text[index] = parse_sentence(foreign_sentences.pop())
    error_counts = rng.take_error_counts("cohesion", FOREIGN_SENTENCES)
    corruptions: dict[str, tuple[Corruption, ...]] = {
        "cohesion": (move_sentences, drop_connectives, insert_connectives, replace_subjects),
        "vocabulary": (make_vague_words(common), make_repeated_words(common), insert_fillers),
        "phraseology": (replace_prepositions, replace_collocations, replace_phrases),
        "grammar": (break_agreement, break_articles, break_endings, break_verb_forms),
        "syntax": (swap_words, move_words, drop_subjects, join_sentences, split_at_commas),
        "conventions": (misspell_words, confuse_homophones, break_capitals, break_punctuation),
    }
    for quality, quality_corruptions in corruptions.items():
        for corruption in quality_corruptions:
            corruption(
                text, rates[quality] * math.exp(ERROR_KIND_SD * rng.normal() - ERROR_KIND_SD**2 / 2), rng
            )
            error_counts += rng.take_error_counts(quality, corruption.__name__)
    formatted = _format_paragraphs(text, rates["cohesion"], rng)
    error_counts += rng.take_error_counts("cohesion", UNEVEN_PARAGRAPHS)
    return GeneratedText(formatted, scores, true_qualities, tuple(error_counts))


def _round_to_half(score: float) -> float:
    return min(max(math.floor(2 * score + 0.5) / 2, 1.0), 5.0)


def _format_paragraphs(text: list[Sentence], rate: float, rng: PortableRandom) -> str:
    """Format the sentences as paragraphs, of more even length for coherent writers."""
    pieces: list[str] = []
    sentences_left = 4
    for sentence in text:
        if pieces:
            pieces.append(" " if sentences_left else "\n\n")
        if not sentences_left:
            sentences_left = 3 + rng.randbelow(3)
            if rng.error_occurs(0.2, rate):
                sentences_left = 1 + rng.randbelow(12)
        sentences_left -= 1
        pieces.append(format_sentence(sentence))
    return "".join(pieces)
