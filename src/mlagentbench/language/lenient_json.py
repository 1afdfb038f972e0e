"""Reads what a model wrote as a JSON object, however freely it took JSON: the meaning counts, not the form."""

import json
import re
from collections.abc import Collection
from typing import Any

# Models repeat themselves without end: every search here is bounded, so that a long reply is read in no time.
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
ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
    "\n": "",
}
LITERALS = {"true": True, "false": False, "null": None, "none": None}
MAX_DEPTH = 50
MAX_LOOKAHEAD_CHARS = 1000  # characters of comments after a quote, to see whether it ends its string


class UnreadableObject(ValueError):
    """It is no object, whatever one makes of it."""


def parse_object(text: str, known_keys: Collection[str] = ()) -> dict[str, Any]:
    """The object that `text` holds, perhaps in a code fence, among other words, or cut off at its end.

    Where quotes were not escaped, it helps to know the `names` that it may have.
    """
    text = strip_code_fence(text)
    start = text.find("{")
    if start < 0:
        raise UnreadableObject("there is no { in it")
    try:
        found, _ = json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError):
        found = _Parser(text, start, known_keys).parse_value(0)
    if not isinstance(found, dict):
        raise UnreadableObject("it is no object")
    return found


def strip_code_fence(text: str) -> str:
    """The inside of a code fence, if the text is one; without it, the text."""
    opening = OPENING_FENCE.match(text)
    if not opening:
        return text
    ends = (
        place.start() for place in FENCE_LINE.finditer(text, opening.end()) if place[1].startswith(opening[1])
    )
    return text[opening.end() : next(ends, len(text))].rstrip()


class _Parser:
    """Follows the text from one place to the next; whatever can only mean one thing is taken for it."""

    def __init__(self, text: str, at: int, names: Collection[str]) -> None:
        self.text, self.position, self.known_keys = text, at, names
        self._in_list = False
        self._last_comment = text.rfind("*/")

    def parse_value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise UnreadableObject("it is nested too deeply")
        self._skip_whitespace()
        here = self.text[self.position : self.position + 1]
        if here == "{":
            return self._parse_object(depth)
        if here == "[":
            return self._parse_list(depth)
        if here and here in "\"'`":
            return self._parse_string()
        return self._parse_bare_value()

    def _parse_object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.position += 1
        while not self._consume_end("}"):
            name = self._parse_key()
            self._skip_whitespace()
            if self.text[self.position : self.position + 1] not in (":", "="):
                raise UnreadableObject(f"there is no : after {name!r}")
            self.position += 1
            self._in_list = False
            found[name] = self.parse_value(depth + 1)
        return found

    def _parse_list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self.position += 1
        while not self._consume_end("]"):
            self._in_list = True
            found.append(self.parse_value(depth + 1))
        return found

    def _consume_end(self, bracket: str) -> bool:
        """Whether the collection ends here; commas too many are nothing, and the end of the text ends it too."""
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

    def _find_next_token(self, at: int, most: int) -> int:
        """Where the text goes on after spaces and comments, which are looked for up to `most`."""
        while found := WHITESPACE_AND_COMMENTS.match(self.text, at, most):
            at = found.end()
            commented = at < self._last_comment and self.text.startswith("/*", at)
            if not commented or (end := self.text.find("*/", at + 2, most)) < 0:
                break
            at = end + 2
        return at

    def _parse_key(self) -> str:
        here = self.text[self.position]
        if here in "\"'`":
            end = self.text.find(here, self.position + 1)
            if end < 0:
                raise UnreadableObject("a name is not closed")
            name, self.position = self.text[self.position + 1 : end], end + 1
            return name
        found = BARE_KEY.match(self.text, self.position)
        if not found:
            raise UnreadableObject(f"{self.text[self.position : self.position + 20]!r} is no name")
        self.position = found.end()
        return found[0].strip()

    def _parse_bare_value(self) -> Any:
        """A number, a word of JSON's or of Python's, or text without quotes, up to the end of its line."""
        number = NUMBER.match(self.text, self.position)
        if number:
            self.position = number.end()
            text = number[1].replace("_", "")
            return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
        end = BARE_VALUE_END.search(self.text, self.position)
        assert end
        text = self.text[self.position : end.start()].strip()
        if not text:
            raise UnreadableObject(f"there is no value at {self.text[self.position : self.position + 20]!r}")
        self.position = end.start()
        return LITERALS.get(text.lower(), text)

    def _parse_string(self) -> str:
        quote = self.text[self.position]
        if self.text.startswith(quote * 3, self.position):
            return self._parse_triple_quoted(quote * 3)
        begin = self.position = self.position + 1
        while (end := self.text.find(quote, self.position)) >= 0:
            self.position = end + 1
            if _count_backslashes(self.text, end) % 2 == 0 and self._quote_ends_string():
                return _unescape(self.text[begin:end])
        self.position = len(self.text)  # it was cut off
        return _unescape(self.text[begin:].rstrip().removesuffix("}").rstrip())

    def _quote_ends_string(self) -> bool:
        """Whether a quote is the last of its string, and not one that somebody forgot to escape."""
        most = self.position + MAX_LOOKAHEAD_CHARS
        at = self._find_next_token(self.position, most)
        follows = self.text[at : at + 1]
        if self._in_list:
            return follows in ("", ",", "]")
        if follows in ("", "}"):
            return not follows or bool(CLOSING_REST.match(self.text, at))
        if comma := follows == ",":
            at = self._find_next_token(at + 1, most)
            if self.text[at : at + 1] in ("", "}"):
                return True
        named = KEY_WITH_COLON.match(self.text, at)
        return bool(named and (named[2] in self.known_keys or (comma and not self.known_keys)))

    def _parse_triple_quoted(self, quotes: str) -> str:
        """Between triple quotes newlines are newlines, and then backslashes are the text's own."""
        begin = self.position + 3
        end = self.text.find(quotes, begin)
        while end >= 0 and self.text[end + 3 : end + 4] == quotes[0]:
            end += 1
        self.position = end + 3 if end >= 0 else len(self.text)
        content = self.text[begin : end if end >= 0 else len(self.text)]
        return content.removeprefix("\n") if "\n" in content else _unescape(content)


def _count_backslashes(text: str, end: int) -> int:
    begin = end
    while begin and text[begin - 1] == "\\":
        begin -= 1
    return end - begin


def _unescape(text: str) -> str:
    """Escapes as JSON and Python have them; a backslash before anything else is a backslash."""

    def one(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "uUx" and len(code) > 1:
            return chr(min(int(code[1:], 16), 0x10FFFF))
        return ESCAPES.get(code, "\\" + code)

    plain = re.sub(r"\\(U[0-9a-fA-F]{8}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", one, text, flags=re.DOTALL)
    return plain.encode("utf-16", "surrogatepass").decode(
        "utf-16", "replace"
    )  # pairs of \u become one character
