"""Pages that are one file each: they open from disk, load nothing, and run only scripts of ours."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2
from markupsafe import Markup

from mlagentbench import words
from mlagentbench.reports.look.visible import visible

REPORTS = Path(__file__).parents[1]
STYLE, SWITCH = "look/style.css", "look/switch.js"


@cache
def environment() -> jinja2.Environment:
    """Templates by their path below reports/; whatever they print is escaped, and odd characters are shown."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(REPORTS),
        autoescape=True,
        finalize=_finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": words.number, "percent": words.percent, "duration": words.duration}
    return made


def page(
    template: str,
    *,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    allow: Mapping[str, str] = MappingProxyType({}),
    **values: Any,
) -> str:
    """A whole page; `styles` and `scripts` are files below reports/, `allow` adds to the content security policy."""
    own_style = Markup("\n".join(source(name) for name in (STYLE, *styles)))
    switch, *others = (Markup(source(name)) for name in (SWITCH, *scripts))
    rules = {
        "default-src": "'none'",
        "style-src": _hash(own_style),
        "script-src": " ".join(_hash(script) for script in (switch, *others)),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        **allow,
    }
    policy = Markup("; ".join(f"{name} {value}" for name, value in rules.items()))
    given = {"home": "", **values, "style": own_style, "switch": switch, "scripts": others, "policy": policy}
    return environment().get_template(template).render(given)


@cache
def source(name: str) -> str:
    """The text of a style or a script."""
    return (REPORTS / name).read_text(encoding="utf-8").strip()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _finalize(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
