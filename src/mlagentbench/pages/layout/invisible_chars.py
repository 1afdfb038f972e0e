"""Making characters visible that could hide or reorder parts of an untrusted text."""

import re

# Control characters except tab and line feed, bidi controls, zero-width characters, tags, surrogates.
INVISIBLE_CHARS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)


def reveal_invisible_chars(text: str) -> str:
    """Replace each invisible character by a symbol or its code point."""
    if text.isprintable():  # most values of a page, and no invisible character is printable
        return text
    return INVISIBLE_CHARS.sub(_visible_symbol, text.replace("\r\n", "\n"))


def _visible_symbol(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code == 0x0D:
        # Progress bars overwrite one line with carriage returns.
        return "␍\n"
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"
