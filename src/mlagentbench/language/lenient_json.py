"""Parses JSON objects as models write them: by what was evidently meant, however the JSON is malformed."""

import json
import re
from collections.abc import Collection
from typing import Any

# Models can repeat themselves endlessly: every search here is bounded, so that long replies parse fast.
WHITESPACE_AND_COMMENTS = re.compile(r"(?:\s|//[^\n]*|#[^\n]*)*")
OPENING_FENCE = re.compile(r"\s*(`{3,}|~{3,})[^\n`]*\n")
FENCE_LINE = re.compile(r"^[ \t]*(`{3,}|~{3,})", re.MULTILINE)
BARE_KEY = re.compile(r"[A-Za-z_][\w .()-]{0,99}?(?=\s{0,20}[:=,}\]\n]|$)")
NUMBER = re.compile(
    r"([+-]?(?:\d[\d_]{0,300}\.?\d{0,300}|\.\d{1,300})(?:[eE][+-]?\d{1,9})?)\s*(?=[,}\]\n]|//|#|$)"
)
KEY_WITH_COLON = re.compile(r"""(['"`]?)([A-Za-z_][\w .()-]{0,59}?)\1\s{0,20}[:=]""")
BARE_VALUE_END = re.compile(r"[,}\]\n]|$")
CLOSING_REST = re.compile(r"\}[\s}\],]*(?:[`~]{3}.*)?$", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": "", **{c: c for c in "\"'\\/"}}
LITERALS = {"true": True, "false": False, "null": None, "none": None}
JSON_DECODER = json.JSONDecoder(strict=False)  # accepts control characters in strings, and no other error
MAX_DEPTH = 50
MAX_LOOKAHEAD_CHARS = 1000  # whitespace and comments after a quote, to decide whether it ends the string


class UnreadableObject(ValueError):
    """The text is not a JSON object, even by lenient rules."""


def parse_object(text: str, known_keys: Collection[str] = ()) -> dict[str, Any]:
    """Parse the object in `text`, which may be in a code fence, surrounded by prose, or truncated.

    Args:
        text: The model's text.
        known_keys: The keys that the object may have; they help to find the end of a string with
            unescaped quotes.

    Returns:
        The parsed object.

    Raises:
        UnreadableObject: There is no object, or it cannot be parsed.
    """
    text = strip_code_fence(text)
    start = text.find("{")
    if start < 0:
        raise UnreadableObject("it contains no {")
    try:
        value, _ = JSON_DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        value = _Parser(text, start, known_keys).parse_value(0)
    if not isinstance(value, dict):
        raise UnreadableObject("it is not an object")
    return value


def strip_code_fence(text: str) -> str:
    """Return the content of the code fence that the text starts with; otherwise the text itself."""
    opening = OPENING_FENCE.match(text)
    if not opening:
        return text
    ends = (
        fence.start() for fence in FENCE_LINE.finditer(text, opening.end()) if fence[1].startswith(opening[1])
    )
    return text[opening.end() : next(ends, len(text))].rstrip()


class _Parser:
    """A recursive descent parser that accepts every deviation from JSON with only one possible meaning."""

    def __init__(self, text: str, position: int, known_keys: Collection[str]) -> None:
        self.text, self.position, self.known_keys = text, position, known_keys
        self._in_list = False
        self._last_comment_end = text.rfind("*/")

    def parse_value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise UnreadableObject("it is nested too deeply")
        self._skip_whitespace()
        character = self.text[self.position : self.position + 1]
        if character == "{":
            return self._parse_object(depth)
        if character == "[":
            return self._parse_list(depth)
        if character and character in "\"'`":
            return self._parse_string()
        return self._parse_bare_value()

    def _parse_object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self.position += 1
        while not self._consume_end("}"):
            key = self._parse_key()
            self._skip_whitespace()
            if self.text[self.position : self.position + 1] not in (":", "="):
                raise UnreadableObject(f"the key {key!r} is not followed by a colon")
            self.position += 1
            self._in_list = False
            members[key] = self.parse_value(depth + 1)
        return members

    def _parse_list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self.position += 1
        while not self._consume_end("]"):
            self._in_list = True
            items.append(self.parse_value(depth + 1))
        return items

    def _consume_end(self, bracket: str) -> bool:
        """Whether the object or list ends here; extra commas are skipped, and the end of the text ends it."""
        self._skip_whitespace()
        while self.text[self.position : self.position + 1] == ",":
            self.position += 1
            self._skip_whitespace()
        if self.position >= len(self.text):
            return True
        if self.text[self.position] == bracket:
            self.position += 1
            return True
        return False

    def _skip_whitespace(self) -> None:
        self.position = self._find_next_token(self.position, len(self.text))

    def _find_next_token(self, start: int, limit: int) -> int:
        """The position after whitespace and comments, searched up to `limit`."""
        while match := WHITESPACE_AND_COMMENTS.match(self.text, start, limit):
            start = match.end()
            in_comment = start < self._last_comment_end and self.text.startswith("/*", start)
            if not in_comment or (end := self.text.find("*/", start + 2, limit)) < 0:
                break
            start = end + 2
        return start

    def _parse_key(self) -> str:
        quote = self.text[self.position]
        if quote in "\"'`":
            end = self.text.find(quote, self.position + 1)
            if end < 0:
                raise UnreadableObject("a key has no closing quote")
            key, self.position = self.text[self.position + 1 : end], end + 1
            return key
        match = BARE_KEY.match(self.text, self.position)
        if not match:
            raise UnreadableObject(f"expected a key, found {self.text[self.position : self.position + 20]!r}")
        self.position = match.end()
        return match[0].strip()

    def _parse_bare_value(self) -> Any:
        """A number, a literal of JSON or Python, or text without quotes up to the end of the line."""
        number = NUMBER.match(self.text, self.position)
        if number:
            self.position = number.end()
            text = number[1].replace("_", "")
            return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
        end = BARE_VALUE_END.search(self.text, self.position)
        assert end
        text = self.text[self.position : end.start()].strip()
        if not text:
            raise UnreadableObject(
                f"expected a value, found {self.text[self.position : self.position + 20]!r}"
            )
        self.position = end.start()
        return LITERALS.get(text.lower(), text)

    def _parse_string(self) -> str:
        quote = self.text[self.position]
        if self.text.startswith(quote * 3, self.position):
            return self._parse_triple_quoted(quote * 3)
        start = self.position = self.position + 1
        while (end := self.text.find(quote, self.position)) >= 0:
            self.position = end + 1
            if _count_backslashes(self.text, end) % 2 == 0 and self._quote_ends_string():
                return _unescape(self.text[start:end])
        self.position = len(self.text)  # the string is truncated
        return _unescape(self.text[start:].rstrip().removesuffix("}").rstrip())

    def _quote_ends_string(self) -> bool:
        """Whether the quote before the current position ends the string, or should have been escaped."""
        limit = self.position + MAX_LOOKAHEAD_CHARS
        position = self._find_next_token(self.position, limit)
        following = self.text[position : position + 1]
        if self._in_list:
            return following in ("", ",", "]")
        if following in ("", "}"):
            return not following or bool(CLOSING_REST.match(self.text, position))
        if has_comma := following == ",":
            position = self._find_next_token(position + 1, limit)
            if self.text[position : position + 1] in ("", "}"):
                return True
        key = KEY_WITH_COLON.match(self.text, position)
        return bool(key and (key[2] in self.known_keys or (has_comma and not self.known_keys)))

    def _parse_triple_quoted(self, quotes: str) -> str:
        """A triple-quoted string; if it has several lines, backslashes in it are literal."""
        start = self.position + 3
        end = self.text.find(quotes, start)
        while end >= 0 and self.text[end + 3 : end + 4] == quotes[0]:
            end += 1
        self.position = end + 3 if end >= 0 else len(self.text)
        content = self.text[start : end if end >= 0 else len(self.text)]
        return content.removeprefix("\n") if "\n" in content else _unescape(content)


def _count_backslashes(text: str, end: int) -> int:
    """The number of backslashes directly before `end`."""
    start = end
    while start and text[start - 1] == "\\":
        start -= 1
    return end - start


def _unescape(text: str) -> str:
    """Resolve the escapes of JSON and Python; a backslash before anything else is literal."""

    def resolve(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] in "uUx" and len(escape) > 1:
            return chr(min(int(escape[1:], 16), 0x10FFFF))
        return ESCAPES.get(escape, "\\" + escape)

    unescaped = re.sub(
        r"\\(U[0-9a-fA-F]{8}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", resolve, text, flags=re.DOTALL
    )
    # Combines surrogate pairs (two \u escapes) into one character.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
