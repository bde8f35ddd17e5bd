"""Takes the pictures of the operator's page that the README shows: of real parts, in the middle of the demo's flood.

``make screenshots``, or ``.venv/bin/python -m hack.generate.screenshots``.
"""

import re
import sys
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Literal

from playwright.sync_api import Page, Playwright, expect, sync_playwright

from hack.debian import ensure
from hack.demo.console import chapter, say, took
from hack.demo.models.model import MODELS
from hack.demo.paths import REPOSITORY, STATE
from hack.demo.stack import Stack, running
from hack.demo.story.asking import make_prompt, tenant_with_key
from hack.demo.story.flood import CONCURRENT, Flood

IMAGES = REPOSITORY / "docs" / "images"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTH = 1240
MAX_BYTES = 200_000

_PROMPT_BLOCKS = 60
_CALM_SECONDS = 60.0
"""Before the flood, so that the history shows where it begins, ..."""
_FLOOD_SECONDS = 60.0
"""... and that it went on when the pictures were taken."""
_PATIENCE_MILLISECONDS = 120_000


def main() -> int:
    """Take all pictures; the exit code is 1 if one is too large."""
    expect.set_options(timeout=_PATIENCE_MILLISECONDS)
    with running(MODELS["tiny"], STATE / "screenshots", kubeconfig=None, compare=False) as stack:
        chapter("The pictures")
        with sync_playwright() as playwright, ExitStack() as tabs:
            pages = _open(playwright, tabs, f"http://localhost:{stack.console_port}")
            files = _take(stack, pages)
    too_large = [file for file in files if file.stat().st_size > MAX_BYTES]
    for file in files:
        say(f"{file.relative_to(REPOSITORY)}: {file.stat().st_size // 1000} kB")
    return 1 if too_large else 0


def _open(playwright: Playwright, tabs: ExitStack, url: str) -> dict[str, Page]:
    browser = playwright.chromium.launch(executable_path=ensure("chromium"), args=["--disable-dev-shm-usage"])
    tabs.callback(browser.close)
    pages: dict[str, Page] = {}
    for scheme in SCHEMES:
        pages[scheme] = browser.new_page(
            color_scheme=scheme, reduced_motion="reduce", viewport={"width": WIDTH, "height": 900}
        )
        pages[scheme].goto(url)
    return pages


def _take(stack: Stack, pages: dict[str, Page]) -> list[Path]:
    acme, burst = (tenant_with_key(name, stack.keys[name], stack.zone, stack.model) for name in ("acme", "burst"))
    for _ in range(3):
        acme.ask(make_prompt(stack.model, _PROMPT_BLOCKS, seed="handbook"))
    burst.ask(make_prompt(stack.model, _PROMPT_BLOCKS // 2, seed="letter"))
    for page in pages.values():
        expect(page.get_by_role("button", name=re.compile("^acme [0-9]+ blocks"))).to_be_visible()
    stop = Event()
    with took("calm"):
        stop.wait(_CALM_SECONDS)
    flood = Flood(burst, turnovers_wanted=float("inf"))
    with ThreadPoolExecutor(CONCURRENT) as askers:
        flooding = [askers.submit(flood.run, stop) for _ in range(CONCURRENT)]
        try:
            with took("burst floods the engine"):
                wait(flooding, _FLOOD_SECONDS, return_when=FIRST_COMPLETED)
            files = [_shoot(page, IMAGES / f"console-{scheme}.png") for scheme, page in pages.items()]
        finally:
            stop.set()
    say(f"The flood turned the pool over {flood.turnovers:.0f} times.")
    for one in flooding:
        one.result()
    return files


def _shoot(page: Page, file: Path) -> Path:
    """The upper part of the page, while burst's requests run."""
    in_use = re.compile(r"burst: [0-9]{2,} in use")
    expect(page.get_by_role("row").filter(has_text="burst").filter(has_text="Active")).to_be_visible()
    expect(page.get_by_role("application")).to_have_attribute("aria-label", in_use)
    history = page.get_by_role("region", name="The last five minutes").bounding_box()
    assert history is not None
    file.parent.mkdir(parents=True, exist_ok=True)
    height = history["y"] + history["height"] + 12
    page.screenshot(path=file, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
    return file


if __name__ == "__main__":
    sys.exit(main())
