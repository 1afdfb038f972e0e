"""Figures: they fit a paper's column, are distinguishable without color, and are harmless inside a page."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest

from mlagentbench.pages.figures.bars import draw_error_modes
from mlagentbench.pages.figures.efficiency import EfficiencyPoint, draw_efficiency
from mlagentbench.pages.figures.heatmap import draw_heatmap
from mlagentbench.pages.figures.inline import inline_svg
from mlagentbench.pages.figures.lines import Curve, draw_curves, draw_panels
from mlagentbench.pages.figures.style import COLUMN_WIDTH_IN, PAGE_WIDTH_IN, assign_line_styles, wrap_name

FOOTER = "open edition · 12 runs (1 fault) · mlagentbench 0.1.0 and Python 3.11 · a chip, 2 cores, 8 GB"
AGENTS = ["tuner", "react local:small", "<script>alert(1)</script> & $x_1$", "模型 \x1b[31m\u202e"]
CURVES = {name: Curve([0, 1, 2], [0.0, 0.5, number / 4]) for number, name in enumerate(AGENTS)}
FIGURES: dict[str, tuple[float, Callable[[], dict[str, bytes]]]] = {
    "heatmap": (
        PAGE_WIDTH_IN,
        lambda: draw_heatmap(
            ["a", "b"], AGENTS, [[0.5] * 4, [None] * 4], [["50"] * 4, ["–"] * 4], "success", FOOTER
        ),
    ),
    "efficiency": (
        COLUMN_WIDTH_IN,
        lambda: draw_efficiency(
            [EfficiencyPoint(agent, 0.5, (0.2, 0.8), 9.0, (8, 10)) for agent in AGENTS],
            "seconds",
            "success",
            FOOTER,
        ),
    ),
    "free": (
        COLUMN_WIDTH_IN,
        lambda: draw_efficiency(
            [EfficiencyPoint("a", 0.5, (0, 1), 0, (0, 0)), EfficiencyPoint("b", 1, (1, 1), 1e6, (1, 2e6))],
            "x",
            "progress",
            FOOTER,
        ),
    ),
    "bars": (
        PAGE_WIDTH_IN,
        lambda: draw_error_modes(
            ["no submission"], {agent: [0.5] for agent in AGENTS}, dict.fromkeys(AGENTS, 2), FOOTER
        ),
    ),
    "curves": (COLUMN_WIDTH_IN, lambda: draw_curves(CURVES, "step", "success", FOOTER)),
    "over time": (
        COLUMN_WIDTH_IN,
        lambda: draw_curves({"a": Curve([0.01, 1e6], [0, 1])}, "seconds", "success", FOOTER, "log"),
    ),
    "panels": (
        PAGE_WIDTH_IN,
        lambda: draw_panels({f"task {n}": CURVES for n in range(5)}, "step", "improvement", FOOTER),
    ),
}


@cache
def draw_once(name: str) -> dict[str, bytes]:
    return FIGURES[name][1]()


@pytest.fixture(params=FIGURES)
def figure(request: pytest.FixtureRequest) -> tuple[float, dict[str, bytes]]:
    """The width of a figure and its files."""
    return FIGURES[request.param][0], draw_once(request.param)


def test_a_figure_is_as_wide_as_a_column_or_a_page(figure: tuple[float, dict[str, bytes]]) -> None:
    width, files = figure
    assert float(ET.fromstring(files["svg"]).attrib["width"].removesuffix("pt")) == pytest.approx(width * 72)
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", files["pdf"])
    assert box and float(box[1]) == pytest.approx(width * 72)


def test_text_stays_text_that_can_be_searched_and_edited(figure: tuple[float, dict[str, bytes]]) -> None:
    _, files = figure
    words = " ".join(
        "".join(text.itertext())
        for text in ET.fromstring(files["svg"]).iter("{http://www.w3.org/2000/svg}text")
    )
    assert "12 runs (1 fault)" in words
    assert b"/FontFile2" in files["pdf"] and b"/Type3" not in files["pdf"]


def test_an_inline_figure_needs_no_style_attributes_and_contains_no_script(
    figure: tuple[float, dict[str, bytes]],
) -> None:
    text = inline_svg(figure[1]["svg"], 'a "title"')
    assert not re.search(r"style|<script|<metadata|javascript|\son\w+=", re.sub(r"<text.*?</text>", "", text))
    assert "<script" not in text
    assert "var(--ink)" in text and 'aria-label="a &#34;title&#34;"' in text
    referenced = set(re.findall(r"#([\w.-]+)[\")]", text))
    assert set(re.findall(r' id="([^"]*)"', text)) <= referenced


def test_the_same_input_gives_the_same_bytes() -> None:
    assert FIGURES["curves"][1]() == draw_once("curves")


def test_thirty_agents_have_thirty_different_styles() -> None:
    styles = list(assign_line_styles([str(number) for number in range(30)]).values())
    assert len({tuple(style.values()) for style in styles}) == 30
    # Points have no dashes.
    assert len({(style["color"], style["marker"]) for style in styles}) == 30
    # The first ones are distinguishable in black and white.
    assert len({style["marker"] for style in styles[:7]}) == 7


def test_a_long_name_is_wrapped_at_separators() -> None:
    assert wrap_name("react local:smollm2-135m", 14) == "react local:\nsmollm2-135m"
    assert wrap_name("tuner") == "tuner"
    assert max(map(len, wrap_name("x" * 100, 10).split("\n"))) == 10
    assert wrap_name("") == ""


def test_the_labels_of_a_percent_axis_do_not_touch() -> None:
    svg = draw_curves({"a": Curve([-0.5, 0.3, 1.5], [1, 0.5, 0])}, "progress", "runs", FOOTER, "share")["svg"]
    texts = [text for text in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text") if text.text]
    labels = [text for text in texts if "%" in str(text.text) and "middle" in text.attrib["style"]]
    assert len(labels) >= 3
    char_width_pt, gap_pt = 0.77 * 7, 4  # in the widest of the fonts, at size 7
    for left, right in pairwise(labels):
        half_widths_pt = char_width_pt * (len(str(left.text)) + len(str(right.text))) / 2
        assert float(right.attrib["x"]) - float(left.attrib["x"]) > half_widths_pt + gap_pt
