"""A figure inside a page: it follows light and dark, and needs no style attribute, which the page's policy refuses."""

import re

from markupsafe import Markup

from mlagentbench.pages.figures.style import GRID_COLOUR, MUTED_COLOUR, SERIES_COLOURS, TEXT_COLOUR

THEME_COLOURS = {TEXT_COLOUR: "var(--ink)", MUTED_COLOUR: "var(--muted)", GRID_COLOUR: "var(--line)"}
THEME_COLOURS |= {colour: f"var(--series-{number})" for number, colour in enumerate(SERIES_COLOURS, 1)}
STYLE_ATTRIBUTE = re.compile(r' style="([^"]*)"')
THEME_COLOUR = re.compile("|".join(THEME_COLOURS))
ID_REFERENCE = re.compile(r"(?:href=\"|url\()#([\w.-]+)")
ID_ATTRIBUTE = re.compile(r' id="([^"]*)"')
EXCESS_DECIMALS = re.compile(r"(\.\d\d)\d+")
DROPPED_PROPERTIES = ("font-family",)  # letters are the page's


def inline_svg(svg: bytes, title: str) -> Markup:
    """The picture as a part of HTML; `title` is read aloud instead of it."""
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = STYLE_ATTRIBUTE.sub(lambda found: _style_to_attributes(found[1]), text)
    kept = set(ID_REFERENCE.findall(text))
    text = ID_ATTRIBUTE.sub(lambda found: found[0] if found[1] in kept else "", text)
    text = EXCESS_DECIMALS.sub(r"\1", text)
    text = re.sub(r"\s*\n\s*", " ", text).replace("> <", "><")
    head = f'<svg class="figure" role="img" aria-label="{Markup.escape(title)}" stroke-linejoin="round"'
    return Markup(text.replace("<svg", head, 1))


def _style_to_attributes(style: str) -> str:
    pairs = (pair.partition(":") for pair in style.split(";") if ":" in pair)
    named = {
        name.strip(): THEME_COLOUR.sub(lambda found: THEME_COLOURS[found[0]], value.strip())
        for name, _, value in pairs
    }
    return "".join(f' {name}="{value}"' for name, value in named.items() if name not in DROPPED_PROPERTIES)
