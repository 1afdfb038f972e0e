"""Turns text into tokens by byte-pair encoding, as the two kinds of Llama tokenizers do, and tokens into bytes."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

# Words with the space before them, single digits, other signs, and the rest of the spaces.
WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
SPACE = "\u2581"  # stands for a space where text is not encoded byte by byte


class Tokenizer:
    """A vocabulary, and pairs of tokens to join, the most urgent first."""

    def __init__(self, vocabulary: list[str], merges: Iterable[str]) -> None:
        self.vocabulary = vocabulary
        self._ids = {token: number for number, token in enumerate(vocabulary)}
        self._ranks = {tuple(pair.split(" ")): rank for rank, pair in enumerate(merges)}
        self._words: dict[str, list[str]] = {}
        self._bytes = not any(token.startswith(SPACE) for token in vocabulary)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text with single spaces, after the sign that begins a text where there is one."""
        if self._bytes:
            words = ["".join(LETTERS[byte] for byte in word.encode()) for word in WORDS.findall(text)]
        else:
            words = [
                SPACE + word for word in text.split(" ")
            ]  # no token reaches over a space to the next word
        start = [self._ids["<s>"]] if "<s>" in self._ids and not self._bytes else []
        return start + [self._ids[token] for word in words for token in self._joined(word)]

    def texts(self) -> list[str]:
        """What each token stands for, one character for each byte."""
        return [self._text(token) for token in self.vocabulary]

    def _text(self, token: str) -> str:
        if self._bytes and all(letter in BYTES for letter in token):
            return "".join(chr(BYTES[letter]) for letter in token)
        if named := re.fullmatch(r"<0x([0-9A-F]{2})>", token):
            return chr(int(named[1], 16))
        return token.replace(SPACE, " ").encode().decode("latin-1")

    def _joined(self, word: str) -> list[str]:
        if word not in self._words:
            parts = list(word)
            while pairs := list(self._known_pairs(parts)):
                _, at = min(pairs)
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
            self._words[word] = parts
        return self._words[word]

    def _known_pairs(self, parts: list[str]) -> Iterator[tuple[int, int]]:
        for at, pair in enumerate(pairwise(parts)):
            if pair in self._ranks:
                yield self._ranks[pair], at


def _letters() -> Iterator[str]:
    """One visible character for each byte: itself where it is visible, and else the next that is free."""
    free = 256
    for byte in range(256):
        if chr(byte).isprintable() and byte not in (32, 160, 173):
            yield chr(byte)
        else:
            yield chr(free)
            free += 1


LETTERS = list(_letters())
BYTES = {letter: byte for byte, letter in enumerate(LETTERS)}
