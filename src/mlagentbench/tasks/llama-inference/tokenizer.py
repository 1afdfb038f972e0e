"""Byte-pair encoding as in the two kinds of Llama tokenizers: text to tokens, and tokens to bytes."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

# Words with the space before them, single digits, other symbols, and remaining spaces.
WORD_PATTERN = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
SPACE_SYMBOL = "\u2581"  # represents a space in tokenizers that are not byte-level


class Tokenizer:
    """A vocabulary, and the pairs of tokens to merge, highest priority first."""

    def __init__(self, vocabulary: list[str], merges: Iterable[str]) -> None:
        self.vocabulary = vocabulary
        self._ids = {token: number for number, token in enumerate(vocabulary)}
        self._ranks = {tuple(pair.split(" ")): rank for rank, pair in enumerate(merges)}
        self._merged_words: dict[str, list[str]] = {}
        self._is_byte_level = not any(token.startswith(SPACE_SYMBOL) for token in vocabulary)

    def encode(self, text: str) -> list[int]:
        """Encode a text with single spaces, after the start token if there is one."""
        if self._is_byte_level:
            words = [
                "".join(BYTE_SYMBOLS[byte] for byte in word.encode()) for word in WORD_PATTERN.findall(text)
            ]
        else:
            words = [SPACE_SYMBOL + word for word in text.split(" ")]  # no token spans two words
        start = [self._ids["<s>"]] if "<s>" in self._ids and not self._is_byte_level else []
        return start + [self._ids[token] for word in words for token in self._merge_word(word)]

    def token_texts(self) -> list[str]:
        """Return the text of each token, with one character per byte."""
        return [self._token_text(token) for token in self.vocabulary]

    def _token_text(self, token: str) -> str:
        if self._is_byte_level and all(symbol in SYMBOL_BYTES for symbol in token):
            return "".join(chr(SYMBOL_BYTES[symbol]) for symbol in token)
        if match := re.fullmatch(r"<0x([0-9A-F]{2})>", token):
            return chr(int(match[1], 16))
        return token.replace(SPACE_SYMBOL, " ").encode().decode("latin-1")

    def _merge_word(self, word: str) -> list[str]:
        if word not in self._merged_words:
            parts = list(word)
            while pairs := list(self._mergeable_pairs(parts)):
                _, position = min(pairs)
                parts[position : position + 2] = [parts[position] + parts[position + 1]]
            self._merged_words[word] = parts
        return self._merged_words[word]

    def _mergeable_pairs(self, parts: list[str]) -> Iterator[tuple[int, int]]:
        for position, pair in enumerate(pairwise(parts)):
            if pair in self._ranks:
                yield self._ranks[pair], position


def _byte_symbols() -> Iterator[str]:
    """Yield one visible character for each byte: itself if it is visible, otherwise the next unused one."""
    free = 256
    for byte in range(256):
        if chr(byte).isprintable() and byte not in (32, 160, 173):
            yield chr(byte)
        else:
            yield chr(free)
            free += 1


BYTE_SYMBOLS = list(_byte_symbols())
SYMBOL_BYTES = {symbol: byte for byte, symbol in enumerate(BYTE_SYMBOLS)}
