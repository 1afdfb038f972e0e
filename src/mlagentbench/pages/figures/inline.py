"""Figures as inline SVG: they follow the page's theme and need no style attributes, which its CSP forbids."""

import re

from markupsafe import Markup

from mlagentbench.pages.figures.style import GRID_COLOR, MUTED_COLOR, SERIES_COLORS, TEXT_COLOR

THEME_COLORS = {TEXT_COLOR: "var(--ink)", MUTED_COLOR: "var(--muted)", GRID_COLOR: "var(--line)"}
THEME_COLORS |= {color: f"var(--series-{number})" for number, color in enumerate(SERIES_COLORS, 1)}
STYLE_ATTRIBUTE = re.compile(r' style="([^"]*)"')
THEME_COLOR = re.compile("|".join(THEME_COLORS))
ID_REFERENCE = re.compile(r"(?:href=\"|url\()#([\w.-]+)")
ID_ATTRIBUTE = re.compile(r' id="([^"]*)"')
EXCESS_DECIMALS = re.compile(r"(\.\d\d)\d+")
DROPPED_PROPERTIES = ("font-family",)  # the page sets the font


def inline_svg(svg: bytes, title: str) -> Markup:
    """Convert an SVG file to HTML; screen readers read `title` instead of the figure."""
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = STYLE_ATTRIBUTE.sub(lambda match: _style_to_attributes(match[1]), text)
    referenced = set(ID_REFERENCE.findall(text))
    text = ID_ATTRIBUTE.sub(lambda match: match[0] if match[1] in referenced else "", text)
    text = EXCESS_DECIMALS.sub(r"\1", text)
    text = re.sub(r"\s*\n\s*", " ", text).replace("> <", "><")
    start_tag = f'<svg class="figure" role="img" aria-label="{Markup.escape(title)}" stroke-linejoin="round"'
    return Markup(text.replace("<svg", start_tag, 1))


def _style_to_attributes(style: str) -> str:
    pairs = (pair.partition(":") for pair in style.split(";") if ":" in pair)
    properties = {
        name.strip(): THEME_COLOR.sub(lambda match: THEME_COLORS[match[0]], value.strip())
        for name, _, value in pairs
    }
    return "".join(
        f' {name}="{value}"' for name, value in properties.items() if name not in DROPPED_PROPERTIES
    )
