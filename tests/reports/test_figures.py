"""Figures: fit for a paper's column, told apart without colour, and harmless inside a page."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from mlagentbench.pages.figures.bars import draw_error_modes
from mlagentbench.pages.figures.efficiency import EfficiencyPoint, draw_efficiency
from mlagentbench.pages.figures.heatmap import draw_heatmap
from mlagentbench.pages.figures.inline import inline_svg
from mlagentbench.pages.figures.lines import Curve, draw_curves, draw_panels
from mlagentbench.pages.figures.style import COLUMN_WIDTH_IN, PAGE_WIDTH_IN, assign_line_styles, wrap_name

FOOT = "open edition · 12 runs (1 fault) · mlagentbench 0.1.0 and Python 3.11 · a chip, 2 cores, 8 GB"
WHO = ["tuner", "react local:small", "<script>alert(1)</script> & $x_1$", "模型 \x1b[31m\u202e"]
LINES = {name: Curve([0, 1, 2], [0.0, 0.5, number / 4]) for number, name in enumerate(WHO)}
DRAWN: dict[str, tuple[float, Callable[[], dict[str, bytes]]]] = {
    "heatmap": (
        PAGE_WIDTH_IN,
        lambda: draw_heatmap(
            ["a", "b"], WHO, [[0.5] * 4, [None] * 4], [["50"] * 4, ["–"] * 4], "success", FOOT
        ),
    ),
    "efficiency": (
        COLUMN_WIDTH_IN,
        lambda: draw_efficiency(
            [EfficiencyPoint(who, 0.5, (0.2, 0.8), 9.0, (8, 10)) for who in WHO], "seconds", FOOT
        ),
    ),
    "free": (
        COLUMN_WIDTH_IN,
        lambda: draw_efficiency(
            [EfficiencyPoint("a", 0.5, (0, 1), 0, (0, 0)), EfficiencyPoint("b", 1, (1, 1), 1e6, (1, 2e6))],
            "x",
            FOOT,
        ),
    ),
    "bars": (
        PAGE_WIDTH_IN,
        lambda: draw_error_modes(["no submission"], {who: [0.5] for who in WHO}, dict.fromkeys(WHO, 2), FOOT),
    ),
    "curves": (COLUMN_WIDTH_IN, lambda: draw_curves(LINES, "step", "success", FOOT)),
    "over time": (
        COLUMN_WIDTH_IN,
        lambda: draw_curves({"a": Curve([0.01, 1e6], [0, 1])}, "seconds", "success", FOOT, "log"),
    ),
    "panels": (
        PAGE_WIDTH_IN,
        lambda: draw_panels({f"task {n}": LINES for n in range(5)}, "step", "improvement", FOOT),
    ),
}


@pytest.fixture(scope="module", params=DRAWN)
def drawn(request: pytest.FixtureRequest) -> tuple[float, dict[str, bytes]]:
    width, draw = DRAWN[request.param]
    return width, draw()


def test_a_figure_is_as_wide_as_a_column_or_a_page(drawn: tuple[float, dict[str, bytes]]) -> None:
    width, files = drawn
    assert float(ET.fromstring(files["svg"]).attrib["width"].removesuffix("pt")) == pytest.approx(width * 72)
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", files["pdf"])
    assert box and float(box[1]) == pytest.approx(width * 72)


def test_words_are_text_that_can_be_searched_and_edited(drawn: tuple[float, dict[str, bytes]]) -> None:
    _, files = drawn
    words = " ".join(
        "".join(text.itertext())
        for text in ET.fromstring(files["svg"]).iter("{http://www.w3.org/2000/svg}text")
    )
    assert "12 runs (1 fault)" in words
    assert b"/FontFile2" in files["pdf"] and b"/Type3" not in files["pdf"]


def test_inside_a_page_a_figure_needs_no_style_and_brings_no_script(
    drawn: tuple[float, dict[str, bytes]],
) -> None:
    text = inline_svg(drawn[1]["svg"], 'a "title"')
    assert not re.search(r"style|<script|<metadata|javascript|\son\w+=", re.sub(r"<text.*?</text>", "", text))
    assert "<script" not in text
    assert "var(--ink)" in text and 'aria-label="a &#34;title&#34;"' in text
    referred = set(re.findall(r"#([\w.-]+)[\")]", text))
    assert set(re.findall(r' id="([^"]*)"', text)) <= referred


def test_the_same_figure_has_the_same_bytes() -> None:
    _, draw = DRAWN["curves"]
    assert draw() == draw()


def test_however_many_there_are_no_two_look_alike() -> None:
    seen = assign_line_styles([str(number) for number in range(30)])
    assert len({tuple(look.values()) for look in seen.values()}) == 30
    assert len({(look["color"], look["marker"]) for look in seen.values()}) == 30  # points have no dashes
    assert (
        len({look["marker"] for look in list(seen.values())[:7]}) == 7
    )  # told apart in black and white, too


def test_a_long_name_breaks_at_its_joints() -> None:
    assert wrap_name("react local:smollm2-135m", 14) == "react local:\nsmollm2-135m"
    assert wrap_name("tuner") == "tuner"
    assert max(map(len, wrap_name("x" * 100, 10).split("\n"))) == 10
    assert wrap_name("") == ""
