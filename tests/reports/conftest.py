"""One real browser for all tests of pages; a page fails its test by any error, refused load or dialog."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; as root it cannot have its own sandbox."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as tools:
        launched = tools.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        yield launched
        launched.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open an address: visit(url, width=390, color_scheme="dark"); what the page complains of fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_page(url: str, width: int = 1440, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(request.url))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.goto(url)
        return page

    yield open_page
    heard = list(complaints)  # what is still loading now will be cut off
    for context in contexts:
        context.close()
    assert not heard
