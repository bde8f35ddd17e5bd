"""The page of storages and groups in a real browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tenantzone_operator.kube.rest import RestError
from tests.console.browsing import assert_accessible, opened
from tests.console.colours import Scheme, linear, variables
from tests.console.declared import GIB, Cluster, condition, group, storage
from tests.console.served import ServedConsole

UNHEALTHY = condition("Healthy", "False", "Unhealthy", "there is no folder /mnt/tape")
ACME = {"namespace": "shop", "name": "acme", "types": [{"type": "FileSystem", "reserved": "1Gi", "limit": "4Gi"}]}
FIGURES = {
    "held": 6 * GIB,
    "instances": 2,
    "evictedBlocks": 1234,
    "types": [{"type": "FileSystem", "held": 6 * GIB}],
    "zones": [{"namespace": "shop", "name": "acme", "type": "FileSystem", "held": 2 * GIB, "reserved": GIB}],
}


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.declare(
        storages=[
            storage("disk", held=6 * GIB, capacity="8Gi", watermark="90%"),
            storage("tape", health=UNHEALTHY),
        ],
        groups=[
            group(
                "team",
                reported=FIGURES,
                zones=[ACME],
                quota={"limit": "12Gi", "watermark": "95%"},
                types=[{"type": "FileSystem", "limit": "10Gi"}],
                ttl="1h",
            )
        ],
    )
    return made


@pytest.fixture
def console(cluster: Cluster) -> Iterator[ServedConsole]:
    made = ServedConsole(cluster.list_stored)
    with made.running():
        yield made


def row(page: Page, body: str, name: str) -> Locator:
    return page.locator(f"#{body} tr").filter(has=page.get_by_role("rowheader", name=name))


def test_it_shows_storages_groups_and_what_zones_are_promised(browser: Browser, console: ServedConsole):
    with opened(browser, f"{console.url}/storage") as page:
        expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
        expect(page.locator("#storages-summary")).to_have_text("2 storages")
        disk = row(page, "storage-rows", "disk")
        expect(disk.locator("td")).to_have_text(["FileSystem", "healthy", "", "6 GiB", "8 GiB", "90 %", "/mnt/disk"])
        assert disk.locator(".stored").evaluate("(bar) => bar.style.width") == "75%"
        tape = row(page, "storage-rows", "tape")
        expect(tape).to_contain_text("there is no folder /mnt/tape")
        expect(tape.locator(".badge")).to_have_text("unhealthy")
        expect(tape.locator(".bar")).to_be_hidden()
        team = row(page, "group-rows", "team").locator("td")
        reported = ["ready", "", "6 GiB", "12 GiB", "95 %", "LRU", "1 h 0 min", "2", "1,234", "disk"]
        expect(team).to_have_text(reported)
        types = row(page, "type-rows", "team").locator("td")
        expect(types).to_have_text(["FileSystem", "", "6 GiB", "10 GiB", "–"])
        expect(row(page, "zone-rows", "shop/acme").locator("td")).to_have_text(
            ["team", "FileSystem", "2 GiB", "1 GiB", "4 GiB"]
        )


def test_what_changes_is_seen_while_one_looks(browser: Browser, console: ServedConsole, cluster: Cluster):
    with opened(browser, f"{console.url}/storage") as page:
        expect(row(page, "storage-rows", "tape").locator(".badge")).to_have_text("unhealthy")
        off = condition("Healthy", "True", "Disabled", "spec.enabled is false, so nothing is read or written here")
        cluster.declare(storages=[storage("tape", health=off, held=GIB), storage("third")])
        expect(row(page, "storage-rows", "tape").locator(".badge")).to_have_text("disabled")
        expect(row(page, "storage-rows", "tape").locator(".message")).to_have_text("")
        expect(page.locator("#storages-summary")).to_have_text("3 storages")


def test_the_api_server_s_refusal_is_shown_and_what_was_there_stays(
    browser: Browser, console: ServedConsole, cluster: Cluster
):
    with opened(browser, f"{console.url}/storage") as page:
        expect(row(page, "storage-rows", "disk")).to_be_visible()
        cluster.failure = RestError(403, "kvstorages is forbidden")
        expect(page.get_by_role("status").filter(has_text="kvstorages is forbidden")).to_be_visible()
        expect(row(page, "storage-rows", "disk")).to_be_visible()
        cluster.failure = None
        expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()


def test_text_from_others_is_never_markup(browser: Browser, console: ServedConsole, cluster: Cluster):
    evil = "<img src=x onerror=alert(1)>"
    hostile = storage("tape", health=UNHEALTHY | {"message": evil}, fileSystem={"path": f"/{evil}"})
    odd = condition("Ready", "False", evil, evil)
    cluster.declare(
        storages=[hostile], groups=[group("team", ready=odd, reported={"types": [{"type": evil, "held": 1}]})]
    )
    with opened(browser, f"{console.url}/storage") as page:
        tape = row(page, "storage-rows", "tape")
        expect(tape.locator(".message")).to_have_text(evil)
        expect(tape.locator("td").last).to_have_text(f"/{evil}")
        expect(page.locator("#group-rows .badge")).to_have_text(evil)
        expect(page.locator("#type-rows td").first).to_have_text(evil)
        assert page.locator("img[src=x]").count() == 0


def test_everything_is_reached_in_order_with_the_tab_key(browser: Browser, console: ServedConsole):
    with opened(browser, f"{console.url}/storage") as page:
        expect(page.locator("#zone-rows tr")).to_have_count(1)
        reached = []
        for _ in range(7):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")
            )
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"the focus on {reached[-1]} is seen"
        tables = ["Storages", "Groups", "Groups by storage type", "Zones that groups name"]
        assert reached == ["Skip to the storages", "Pools", "Storage", *tables]
        page.locator(".skip").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#main")).to_be_focused()


def test_one_page_leads_to_the_other(browser: Browser, console: ServedConsole):
    console.add_pool()
    with opened(browser, console.url) as page:
        pages = page.get_by_role("navigation", name="Pages")
        expect(pages.get_by_role("link", name="Pools")).to_have_attribute("aria-current", "page")
        pages.get_by_role("link", name="Storage").click()
        expect(page.get_by_role("heading", name="Storages")).to_be_visible()
        expect(pages.get_by_role("link", name="Storage")).to_have_attribute("aria-current", "page")
        pages.get_by_role("link", name="Pools").click()
        expect(page.get_by_role("heading", name="Pool default/demo")).to_be_visible()


def test_without_a_manager_it_says_so_and_nothing_leads_there(browser: Browser):
    console = ServedConsole()
    with console.running():
        console.add_pool()
        with opened(browser, console.url) as page:
            expect(page.get_by_role("heading", name="Pool default/demo")).to_be_visible()
            expect(page.locator("#pages")).to_be_hidden()
            page.goto(f"{console.url}/storage")
            expect(page.get_by_role("heading", name="No KV-cache manager")).to_be_visible()
            expect(page.get_by_role("heading", name="No storages yet")).to_be_hidden()


def test_where_nothing_is_declared_it_says_how_to_begin(browser: Browser, cluster: Cluster):
    cluster.storages.clear()
    cluster.groups.clear()
    console = ServedConsole(cluster.list_stored)
    with console.running(), opened(browser, f"{console.url}/storage") as page:
        expect(page.get_by_role("heading", name="No storages yet")).to_be_visible()
        cluster.declare(storages=[storage("disk")])
        expect(row(page, "storage-rows", "disk")).to_be_visible()
        expect(page.get_by_role("heading", name="No storages yet")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_complain_about_in_either_scheme(browser: Browser, console: ServedConsole, scheme: Scheme):
    with opened(browser, f"{console.url}/storage", color_scheme=scheme, bypass_csp=True) as page:
        expect(row(page, "storage-rows", "tape")).to_contain_text("there is no folder")
        assert_accessible(page)
        filled = page.locator("#storage-rows .stored").first.evaluate("(bar) => getComputedStyle(bar).backgroundColor")
        parts = [int(part) for part in filled.removeprefix("rgb(").removesuffix(")").split(",")]
        assert linear("#" + "".join(f"{part:02x}" for part in parts)) == variables(scheme)["zone-1"]


def test_a_narrow_window_needs_no_scrolling_sideways(browser: Browser, console: ServedConsole):
    with opened(browser, f"{console.url}/storage", viewport={"width": 320, "height": 640}) as page:
        expect(row(page, "storage-rows", "disk")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
