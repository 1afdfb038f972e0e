"""A real browser for the tests of pages. Any error, refused load or dialog of a page fails the test."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; run as root, it cannot use its own sandbox.

    Playwright's event loop counts as running until it is closed, so it must not outlast these tests.
    """
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open a page: visit(url, width=390, color_scheme="dark"). Problems of the page fail the test."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def open_page(url: str, width: int = 1440, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("requestfailed", lambda request: problems.append(request.url))
        page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
        page.goto(url)
        return page

    yield open_page
    # Closing a context aborts requests that are still loading, which is not a problem of the page.
    problems_before_closing = list(problems)
    for context in contexts:
        context.close()
    assert not problems_before_closing
