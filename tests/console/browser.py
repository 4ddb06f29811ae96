"""A real browser, without a window, for the tests of pages: Chromium of the machine, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
PHONE = {"width": 360, "height": 740}
PATIENCE_MS = 8_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: no page is looked at")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One page, and what went wrong in it."""

    def __init__(self, browser: Browser, scheme: str = "http", **options: Any) -> None:
        """`options`: of the context, as Playwright has them."""
        self._scheme = scheme
        self._context = browser.new_context(**options)
        self._context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self._context.new_page()
        self.wrong: list[str] = []
        """Errors of scripts, and whatever the policy of the page has stopped."""
        self.dialogs: list[str] = []
        """Windows that a script has opened."""
        self.elsewhere: list[str] = []
        """What was asked of anybody but the member."""
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._said)
        self.page.on("dialog", self._asked)

    def _said(self, message: Any) -> None:
        if message.type == "error" and "Content Security Policy" in message.text:
            self.wrong.append(message.text)

    def _asked(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def open(self, address: str, view: str = "") -> Page:
        """Go to the console of the member at this address."""
        self.page.on("request", lambda one: self._requested(one.url, address))
        self.page.goto(f"{self._scheme}://{address}/console{view and '#' + view}")
        return self.page

    def _requested(self, url: str, address: str) -> None:
        if not url.startswith((f"{self._scheme}://{address}/", "data:")):
            self.elsewhere.append(url)

    def log_in(self, user: str, password: str) -> None:
        """As a person does."""
        self.page.get_by_label("User").fill(user)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()
        self.page.locator("nav a").first.wait_for()

    def overflow(self) -> list[str]:
        """What is wider than the window."""
        found: list[str] = self.page.evaluate(
            """() => document.documentElement.scrollWidth <= innerWidth ? [] :
                [...document.querySelectorAll("body *")]
                .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
                .map((one) => `${one.tagName}.${one.className} ${one.textContent.slice(0, 40)}`)"""
        )
        return found

    def close(self) -> None:
        """Leave."""
        self._context.close()
