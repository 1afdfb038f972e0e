"""Text that somebody else wrote, so that no character in it hides or reorders anything."""

import re

# Control characters but tab and line feed; directions; what has no width; tags; halves of characters.
INVISIBLE_CHARS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)


def reveal_invisible_chars(text: str) -> str:
    """The text with a picture or a number for each character that is not to be seen."""
    return INVISIBLE_CHARS.sub(_visible_symbol, text.replace("\r\n", "\n"))


def _visible_symbol(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code == 0x0D:
        return "␍\n"  # progress bars write one line over and over
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"
