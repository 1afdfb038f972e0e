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

from mlagentbench import formatting
from mlagentbench.pages.layout.invisible_chars import reveal_invisible_chars

PAGES_DIR = Path(__file__).parents[1]
BASE_STYLE, THEME_SCRIPT = "look/style.css", "look/switch.js"


@cache
def template_environment() -> jinja2.Environment:
    """Templates by their path below reports/; whatever they print is escaped, and odd characters are shown."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGES_DIR),
        autoescape=True,
        finalize=_finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": formatting.format_score,
        "percent": formatting.format_percent,
        "duration": formatting.format_duration,
    }
    return made


def render_page(
    template: str,
    *,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    csp_rules: Mapping[str, str] = MappingProxyType({}),
    **values: Any,
) -> str:
    """A whole page; `styles` and `scripts` are files below reports/, `allow` adds to the content security policy."""
    own_style = Markup("\n".join(read_asset(name) for name in (BASE_STYLE, *styles)))
    switch, *others = (Markup(read_asset(name)) for name in (THEME_SCRIPT, *scripts))
    rules = {
        "default-src": "'none'",
        "style-src": _csp_hash(own_style),
        "script-src": " ".join(_csp_hash(script) for script in (switch, *others)),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        **csp_rules,
    }
    policy = Markup("; ".join(f"{name} {value}" for name, value in rules.items()))
    given = {"home": "", **values, "style": own_style, "switch": switch, "scripts": others, "policy": policy}
    return template_environment().get_template(template).render(given)


@cache
def read_asset(name: str) -> str:
    """The text of a style or a script."""
    return (PAGES_DIR / name).read_text(encoding="utf-8").strip()


def _csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _finalize(value: object) -> object:
    return (
        reveal_invisible_chars(value) if isinstance(value, str) and not isinstance(value, Markup) else value
    )
