"""Reads what a model wrote as a JSON object, however freely it took JSON: the meaning counts, not the form."""

import json
import re
from collections.abc import Collection
from typing import Any

# Models repeat themselves without end: every search here is bounded, so that a long reply is read in no time.
SPACE = re.compile(r"(?:\s|//[^\n]*|#[^\n]*)*")
FENCE = re.compile(r"\s*(`{3,}|~{3,})[^\n`]*\n")
FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})", re.MULTILINE)
WORD = re.compile(r"[A-Za-z_][\w .()-]{0,99}?(?=\s{0,20}[:=,}\]\n]|$)")
NUMBER = re.compile(r"([+-]?(?:\d[\d_]{0,300}\.?\d{0,300}|\.\d{1,300})(?:[eE][+-]?\d{1,9})?)\s*(?=[,}\]\n]|//|#|$)")
NAMED = re.compile(r"""(['"`]?)([A-Za-z_][\w .()-]{0,59}?)\1\s{0,20}[:=]""")
END = re.compile(r"[,}\]\n]|$")
CLOSED = re.compile(r"\}[\s}\],]*(?:[`~]{3}.*)?$", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\", "/": "/", "\n": ""}
WORDS = {"true": True, "false": False, "null": None, "none": None}
DEEPEST = 50
FAR = 1000  # characters of comments after a quote, to see whether it ends its string


class Unreadable(ValueError):
    """It is no object, whatever one makes of it."""


def read_object(text: str, names: Collection[str] = ()) -> dict[str, Any]:
    """The object that `text` holds, perhaps in a code fence, among other words, or cut off at its end.

    Where quotes were not escaped, it helps to know the `names` that it may have.
    """
    text = unfenced(text)
    start = text.find("{")
    if start < 0:
        raise Unreadable("there is no { in it")
    try:
        found, _ = json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError):
        found = _Reader(text, start, names).value(0)
    if not isinstance(found, dict):
        raise Unreadable("it is no object")
    return found


def unfenced(text: str) -> str:
    """The inside of a code fence, if the text is one; without it, the text."""
    opening = FENCE.match(text)
    if not opening:
        return text
    ends = (place.start() for place in FENCED.finditer(text, opening.end()) if place[1].startswith(opening[1]))
    return text[opening.end() : next(ends, len(text))].rstrip()


class _Reader:
    """Follows the text from one place to the next; whatever can only mean one thing is taken for it."""

    def __init__(self, text: str, at: int, names: Collection[str]) -> None:
        self.text, self.at, self.names = text, at, names
        self._in_list = False
        self._last_comment = text.rfind("*/")

    def value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise Unreadable("it is nested too deeply")
        self._skip()
        here = self.text[self.at : self.at + 1]
        if here == "{":
            return self._object(depth)
        if here == "[":
            return self._list(depth)
        if here and here in "\"'`":
            return self._string()
        return self._bare()

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.at += 1
        while not self._closes("}"):
            name = self._key()
            self._skip()
            if self.text[self.at : self.at + 1] not in (":", "="):
                raise Unreadable(f"there is no : after {name!r}")
            self.at += 1
            self._in_list = False
            found[name] = self.value(depth + 1)
        return found

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self.at += 1
        while not self._closes("]"):
            self._in_list = True
            found.append(self.value(depth + 1))
        return found

    def _closes(self, bracket: str) -> bool:
        """Whether the collection ends here; commas too many are nothing, and the end of the text ends it too."""
        self._skip()
        while self.text[self.at : self.at + 1] == ",":
            self.at += 1
            self._skip()
        if self.at >= len(self.text):
            return True
        if self.text[self.at] == bracket:
            self.at += 1
            return True
        return False

    def _skip(self) -> None:
        self.at = self._after_space(self.at, len(self.text))

    def _after_space(self, at: int, most: int) -> int:
        """Where the text goes on after spaces and comments, which are looked for up to `most`."""
        while found := SPACE.match(self.text, at, most):
            at = found.end()
            commented = at < self._last_comment and self.text.startswith("/*", at)
            if not commented or (end := self.text.find("*/", at + 2, most)) < 0:
                break
            at = end + 2
        return at

    def _key(self) -> str:
        here = self.text[self.at]
        if here in "\"'`":
            end = self.text.find(here, self.at + 1)
            if end < 0:
                raise Unreadable("a name is not closed")
            name, self.at = self.text[self.at + 1 : end], end + 1
            return name
        found = WORD.match(self.text, self.at)
        if not found:
            raise Unreadable(f"{self.text[self.at : self.at + 20]!r} is no name")
        self.at = found.end()
        return found[0].strip()

    def _bare(self) -> Any:
        """A number, a word of JSON's or of Python's, or text without quotes, up to the end of its line."""
        number = NUMBER.match(self.text, self.at)
        if number:
            self.at = number.end()
            text = number[1].replace("_", "")
            return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
        end = END.search(self.text, self.at)
        assert end
        text = self.text[self.at : end.start()].strip()
        if not text:
            raise Unreadable(f"there is no value at {self.text[self.at : self.at + 20]!r}")
        self.at = end.start()
        return WORDS.get(text.lower(), text)

    def _string(self) -> str:
        quote = self.text[self.at]
        if self.text.startswith(quote * 3, self.at):
            return self._block(quote * 3)
        begin = self.at = self.at + 1
        while (end := self.text.find(quote, self.at)) >= 0:
            self.at = end + 1
            if _backslashes(self.text, end) % 2 == 0 and self._ends_here():
                return _unescaped(self.text[begin:end])
        self.at = len(self.text)  # it was cut off
        return _unescaped(self.text[begin:].rstrip().removesuffix("}").rstrip())

    def _ends_here(self) -> bool:
        """Whether a quote is the last of its string, and not one that somebody forgot to escape."""
        most = self.at + FAR
        at = self._after_space(self.at, most)
        follows = self.text[at : at + 1]
        if self._in_list:
            return follows in ("", ",", "]")
        if follows in ("", "}"):
            return not follows or bool(CLOSED.match(self.text, at))
        if comma := follows == ",":
            at = self._after_space(at + 1, most)
            if self.text[at : at + 1] in ("", "}"):
                return True
        named = NAMED.match(self.text, at)
        return bool(named and (named[2] in self.names or (comma and not self.names)))

    def _block(self, quotes: str) -> str:
        """Between triple quotes newlines are newlines, and then backslashes are the text's own."""
        begin = self.at + 3
        end = self.text.find(quotes, begin)
        while end >= 0 and self.text[end + 3 : end + 4] == quotes[0]:
            end += 1
        self.at = end + 3 if end >= 0 else len(self.text)
        content = self.text[begin : end if end >= 0 else len(self.text)]
        return content.removeprefix("\n") if "\n" in content else _unescaped(content)


def _backslashes(text: str, end: int) -> int:
    begin = end
    while begin and text[begin - 1] == "\\":
        begin -= 1
    return end - begin


def _unescaped(text: str) -> str:
    """Escapes as JSON and Python have them; a backslash before anything else is a backslash."""

    def one(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "uUx" and len(code) > 1:
            return chr(min(int(code[1:], 16), 0x10FFFF))
        return ESCAPES.get(code, "\\" + code)

    plain = re.sub(r"\\(U[0-9a-fA-F]{8}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", one, text, flags=re.DOTALL)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # pairs of \u become one character
