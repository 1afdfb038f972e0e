"""Rendering of self-contained pages: they open from disk, load nothing, and run only their own scripts."""

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
BASE_STYLE, THEME_SCRIPT = "layout/style.css", "layout/theme.js"


@cache
def template_environment() -> jinja2.Environment:
    """Templates by their path below pages/; output is escaped, and invisible characters are made visible."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGES_DIR),
        autoescape=True,
        finalize=_finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "score": formatting.format_score,
        "percent": formatting.format_percent,
        "duration": formatting.format_duration,
    }
    return environment


def render_page(
    template: str,
    *,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    csp_rules: Mapping[str, str] = MappingProxyType({}),
    **values: Any,
) -> str:
    """Render a page.

    `styles` and `scripts` are files below pages/; `csp_rules` extend the content security policy.
    """
    style = Markup("\n".join(read_asset(name) for name in (BASE_STYLE, *styles)))
    theme_script, *page_scripts = (Markup(read_asset(name)) for name in (THEME_SCRIPT, *scripts))
    rules = {
        "default-src": "'none'",
        "style-src": _csp_hash(style),
        "script-src": " ".join(_csp_hash(script) for script in (theme_script, *page_scripts)),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        **csp_rules,
    }
    policy = Markup("; ".join(f"{name} {value}" for name, value in rules.items()))
    assets = {"style": style, "theme_script": theme_script, "scripts": page_scripts, "policy": policy}
    return template_environment().get_template(template).render({"index_link": "", **values, **assets})


@cache
def read_asset(name: str) -> str:
    """The text of a style sheet or a script."""
    return (PAGES_DIR / name).read_text(encoding="utf-8").strip()


def _csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _finalize(value: object) -> object:
    if isinstance(value, str) and not isinstance(value, Markup):
        return reveal_invisible_chars(value)
    return value
