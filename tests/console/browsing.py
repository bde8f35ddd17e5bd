"""A headless Chromium that opens the page, and records all complaints."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from hack.debian import ensure

PATIENCE_MILLISECONDS = 60_000
"""On a busy machine the browser may get no processor time for seconds."""

expect.set_options(timeout=PATIENCE_MILLISECONDS)


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # A container has little shared memory. Scrolling text by sub-pixels would make pictures differ.
        browser = playwright.chromium.launch(executable_path=ensure("chromium"), args=["--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, url: str, *, expected: str = "", **options: Any) -> Iterator[Page]:
    """The page in its own tab. The test fails at the end if the browser complains about anything.

    Args:
        browser: the browser that opens the page.
        url: the page's URL.
        expected: complaints that contain this text are intended.
        options: options of the tab, such as ``color_scheme``.
    """
    context = browser.new_context(reduced_motion="reduce", **options)
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    page = context.new_page()
    complaints: list[str] = []
    # A violation of the Content-Security-Policy appears as an error on the console.
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        page.goto(url)
        yield page
    finally:
        context.close()
    unexpected = [complaint for complaint in complaints if not expected or expected not in complaint]
    assert not unexpected, unexpected


def assert_accessible(page: Page) -> None:
    """Checks axe-core's rules, without those that only advise."""
    found = Axe().run(
        page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
    )
    assert found.violations_count == 0, found.generate_report()


def cell_colours(page: Page, *places: float) -> list[list[str]]:
    """Colours of pixels in each cell of the block map's rectangle, as ``#rrggbb``; one list for each place.

    Args:
        page: the console.
        places: where in the cell, both ways: from 0, its upper left corner, to 1.
    """
    # All at once: if a picture is read twice, the browser warns that it could be read faster.
    colours: list[list[str]] = page.locator("#map").evaluate(
        """(canvas, places) => {
            const { width, height, dataset } = canvas;
            const size = width / dataset.columns;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            const colourAt = (x, y) => {
                const first = 4 * (Math.floor(y) * width + Math.floor(x));
                const parts = [...data.slice(first, first + 3)];
                return "#" + parts.map((part) => part.toString(16).padStart(2, "0")).join("");
            };
            return places.map((at) => {
                const colours = [];
                for (let y = at * size; y < height; y += size)
                    for (let x = at * size; x < width; x += size) colours.push(colourAt(x, y));
                return colours;
            });
        }""",
        places,
    )
    return colours
