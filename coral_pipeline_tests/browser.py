"""A real Chromium without a network, and a page in it that was opened from a file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

SCREENSHOTS = Path(__file__).parents[1] / "build" / "screenshots"


@contextmanager
def chromium() -> Iterator[Browser]:
    """The installed Chromium, headless."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "install chromium: `make system-packages`"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page, what its console said, and what it asked for beside the file itself."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def opened(browser: Browser, file: Path, width: int = 1400, height: int = 900, **options: Any) -> Iterator[Opened]:
    """The file in a new window; nothing moves by itself, and there is no network."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, offline=True, reduced_motion="reduce", **options
    )
    found = Opened(context.new_page())
    found.page.set_default_timeout(30_000)
    found.page.on("console", lambda message: found.console.append(message.text))
    found.page.on("pageerror", lambda error: found.console.append(str(error)))
    found.page.on("dialog", lambda dialog: (found.console.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.goto(file.as_uri())
    yield found
    context.close()


def sideways(page: Page) -> float:
    """By how many pixels the page is wider than its window."""
    width: float = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return width
