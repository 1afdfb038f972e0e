"""A figure inside a page: it follows light and dark, and needs no style attribute, which the page's policy refuses."""

import re

from markupsafe import Markup

from mlagentbench.reports.figures.style import INK, LINE, MUTED, SERIES

THEME = {INK: "var(--ink)", MUTED: "var(--muted)", LINE: "var(--line)"}
THEME |= {colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, 1)}
STYLE = re.compile(r' style="([^"]*)"')
COLOUR = re.compile("|".join(THEME))
REFERRED = re.compile(r"(?:href=\"|url\()#([\w.-]+)")
ID = re.compile(r' id="([^"]*)"')
DECIMALS = re.compile(r"(\.\d\d)\d+")
ELSEWHERE = ("font-family",)  # letters are the page's


def inline(svg: bytes, title: str) -> Markup:
    """The picture as a part of HTML; `title` is read aloud instead of it."""
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = STYLE.sub(lambda found: _attributes(found[1]), text)
    kept = set(REFERRED.findall(text))
    text = ID.sub(lambda found: found[0] if found[1] in kept else "", text)
    text = DECIMALS.sub(r"\1", text)
    text = re.sub(r"\s*\n\s*", " ", text).replace("> <", "><")
    head = f'<svg class="figure" role="img" aria-label="{Markup.escape(title)}" stroke-linejoin="round"'
    return Markup(text.replace("<svg", head, 1))


def _attributes(style: str) -> str:
    pairs = (pair.partition(":") for pair in style.split(";") if ":" in pair)
    named = {name.strip(): COLOUR.sub(lambda found: THEME[found[0]], value.strip()) for name, _, value in pairs}
    return "".join(f' {name}="{value}"' for name, value in named.items() if name not in ELSEWHERE)
