"""The page in a real browser, with engines with chosen reports."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from tenantzone_contract.reports.report import LoanReport, TierReport
from tenantzone_contract.reports.zone_report import ZoneTierReport
from tenantzone_operator.console.server import ReplicaState
from tests.console.browsing import assert_accessible, cell_colours, opened
from tests.console.colours import Scheme, linear, variables
from tests.console.served import FREE, READY, Block, Engine, ServedConsole

MakeEngine = Callable[..., Engine]

BUSY: Block = ("burst", "in_use", False)
LENT: Block = ("burst", "cached", True)
IN_USE_BY_ACME: Block = ("acme", "in_use", False)
KEPT: Block = ("acme", "cached", False)
UNOWNED: Block = (None, "in_use", False)

SMALL = [KEPT] * 60 + [BUSY] * 100 + [LENT] * 20 + [UNOWNED] * 5 + [FREE] * 15

NOT_READY = {"type": "Ready", "status": "False", "reason": "PoolOvercommitted", "message": "no room is left"}


def test_it_shows_zones_blocks_and_who_holds_what(browser: Browser, console: ServedConsole, engine_of: MakeEngine):
    engine = engine_of(SMALL, "acme", "burst")
    engine.zones = {"acme": {"reserved": 80, "lent": 20}, "burst": {"borrowed": 20, "evictions": {"own": 1234}}}
    now = time.time()
    engine.loans = (LoanReport(lender="acme", borrower="burst", blocks=20, since_unix_time=now, due_unix_time=now - 1),)
    with opened(browser, console.url) as page:
        expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
        expect(page.locator("#blocks-summary")).to_have_text("engine-0: 200 blocks, one cell per block")
        expect(page.get_by_role("button", name="acme 60 blocks")).to_be_visible()
        expect(page.get_by_role("button", name="burst 120 blocks")).to_be_visible()
        row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="burst"))
        expect(row.first).to_contain_text("1,234")
        expect(page.locator("#loan-rows tr")).to_contain_text("overdue for")
        expect(page.locator("#engine-rows tr")).to_contain_text("answers")
        page.get_by_text("The map as a table").click()
        rows = page.locator("#block-rows tr")
        expect(rows).to_have_text(
            ["acme060060" + "30.0 %", "burst100202012060.0 %", "no zone50052.5 %", "free157.5 %"],
            use_inner_text=False,
        )


def test_the_map_can_be_walked_with_the_keyboard(browser: Browser, console: ServedConsole, engine_of: MakeEngine):
    engine_of(SMALL, "acme", "burst")
    with opened(browser, console.url) as page:
        page.get_by_role("application").focus()
        columns = int(page.locator("#map").get_attribute("data-columns") or 0)
        for key, text in (
            ("Control+Home", "Block 1: acme, cached"),
            ("ArrowRight", "Block 2: acme, cached"),
            ("ArrowLeft", "Block 1: acme, cached"),
            ("ArrowLeft", "Block 1: acme, cached"),
            ("ArrowDown", f"Block {1 + columns}: acme, cached"),
            ("End", f"Block {2 * columns}: "),
            ("Home", f"Block {1 + columns}: acme, cached"),
            ("ArrowUp", "Block 1: acme, cached"),
            ("Control+End", "Block 200: free"),
            ("PageDown", "Block 200: free"),
            ("PageUp", f"Block {max(1, 200 - 5 * columns)}: "),
        ):
            page.keyboard.press(key)
            expect(page.locator("#cell")).to_contain_text(text)


def test_it_shows_own_seats_shares_of_steps_and_a_missed_target(
    browser: Browser, console: ServedConsole, engine_of: MakeEngine
):
    engine = engine_of(SMALL, "acme", "burst")
    missed = {"type": "LatencyTargetMet", "status": "False", "reason": "OwnLoad", "message": "p99 is too long"}
    console.add_zone("acme", status={"conditions": [*READY, missed]})
    engine.zones = {"acme": {"reserved_seats": 7, "computed_tokens": 1000}, "burst": {"computed_tokens": 500}}
    with opened(browser, console.url) as page:
        acme, burst = (page.locator("#zone-rows tr").filter(has_text=name) for name in ("acme", "burst"))
        expect(acme.locator("td").nth(-2)).to_have_text("7")
        expect(acme.locator("td").last).to_have_text("–")
        expect(acme).to_contain_text("misses its latency target: p99 is too long")
        engine.zones["acme"]["computed_tokens"], engine.zones["burst"]["computed_tokens"] = 1025, 575
        expect(acme.locator("td").last).to_have_text("25 %")
        expect(burst.locator("td").last).to_have_text("75 %")


def test_it_shows_what_zones_hold_in_tiers_where_there_are_any(
    browser: Browser, console: ServedConsole, engine_of: MakeEngine
):
    engine = engine_of(SMALL, "acme", "burst")
    with opened(browser, console.url) as page:
        expect(page.locator("#zone-rows tr")).to_have_count(2)
        expect(page.locator("#tiers")).to_be_hidden()
        held = ZoneTierReport(
            tier="cpu", reserved_bytes=2**31, limit_bytes=2**33, held_bytes=1_700_000_000, hits=1234, writes_refused=5
        )
        engine.zones = {"acme": {"tiers": (held,)}}
        engine.tiers = (
            TierReport(tier="cpu", capacity_bytes=2**33, held_bytes=2**32, chunk_bytes=1),
            TierReport(tier="disk", capacity_bytes=2**40, held_bytes=0, chunk_bytes=1, problem="writes fail: no space"),
        )
        rows = page.locator("#tier-rows tr")
        expect(rows).to_have_text(["acmecpu1.6 GiB2 GiB1,23405"], use_inner_text=False)
        expect(page.locator("#engine-tier-rows tr")).to_have_text(
            ["engine-0cpu4 GiB8 GiBworks", "engine-0disk0 B1 TiBfailswrites fail: no space"], use_inner_text=False
        )
        assert_accessible(page)


def test_the_map_shows_a_tiers_chunks_where_the_engine_has_tiers(
    browser: Browser, console: ServedConsole, engine_of: MakeEngine
):
    engine = engine_of(SMALL, "acme", "burst")
    with opened(browser, console.url) as page:
        expect(page.locator("#blocks-summary")).to_have_text("engine-0: 200 blocks, one cell per block")
        expect(page.get_by_label("Of", exact=True)).to_be_hidden()
        engine.tiers = tuple(
            TierReport(tier=tier, capacity_bytes=9, held_bytes=5, chunk_bytes=1) for tier in ("cpu", "disk")
        )
        engine.chunks = {"cpu": [KEPT, KEPT, BUSY, FREE], "disk": [LENT] * 3}
        page.get_by_label("Of", exact=True).select_option(label="tier cpu")
        expect(page.locator("#blocks-summary")).to_have_text("tier cpu of engine-0: 4 chunks, one cell per chunk")
        expect(page.get_by_role("button", name="acme 2 chunks")).to_be_visible()
        expect(page.locator("#key")).to_contain_text("it is being stored or loaded")
        page.get_by_role("application").focus()
        expect(page.locator("#cell")).to_have_text("Chunk 1: acme, cached")
        assert_accessible(page)
        page.get_by_label("Of", exact=True).select_option(label="tier disk")
        expect(page.locator("#blocks-summary")).to_have_text("tier disk of engine-0: 3 chunks, one cell per chunk")
        engine.tiers = ()
        expect(page.locator("#blocks-summary")).to_have_text("engine-0: 200 blocks, one cell per block")


def test_an_engine_that_joins_brings_no_share_of_what_it_computed_before(
    browser: Browser, console: ServedConsole, engine_of: MakeEngine
):
    engine = engine_of(SMALL, "acme", "burst")
    engine.zones = {"acme": {"computed_tokens": 1000}, "burst": {"computed_tokens": 500}}
    with opened(browser, console.url) as page:
        acme = page.locator("#zone-rows tr").filter(has_text="acme")
        expect(acme.locator("td").last).to_have_text("–")
        engine.zones["acme"]["computed_tokens"], engine.zones["burst"]["computed_tokens"] = 1025, 575
        expect(acme.locator("td").last).to_have_text("25 %")
        shown = page.evaluate_handle(
            """cell => {
              const texts = [];
              new MutationObserver(() => texts.push(cell.textContent)).observe(cell, {childList: true, subtree: true});
              return texts;
            }""",
            acme.locator("td").last.element_handle(),
        )
        engine_of(SMALL, "acme", "burst", number=1, reported={"burst": {"computed_tokens": 10**9}})
        expect(page.locator("#engine-rows tr")).to_have_count(2)
        engine.zones["acme"]["computed_tokens"], engine.zones["burst"]["computed_tokens"] = 1065, 635
        expect(acme.locator("td").last).to_have_text("40 %")
        assert "0 %" not in shown.json_value()


def test_what_is_in_use_cached_borrowed_and_unowned_is_said_in_words(
    browser: Browser, console: ServedConsole, engine_of: MakeEngine
):
    engine_of([BUSY, LENT, UNOWNED, KEPT, FREE], "acme", "burst")
    with opened(browser, console.url) as page:
        page.get_by_role("application").focus()
        for text in ("burst, in use", "burst, cached, borrowed", "no zone, in use", "acme, cached", "free"):
            expect(page.locator("#cell")).to_contain_text(text)
            page.keyboard.press("ArrowRight")
        label = page.get_by_role("application").get_attribute("aria-label") or ""
        assert "burst: 1 in use, 1 cached, 1 of them borrowed" in label


def test_enter_shows_only_one_zone_and_escape_all(browser: Browser, console: ServedConsole, engine_of: MakeEngine):
    engine_of(SMALL, "acme", "burst")
    with opened(browser, console.url) as page:
        acme = page.get_by_role("button", name="acme")
        burst = page.get_by_role("button", name="burst")
        page.get_by_role("application").focus()
        page.keyboard.press("Enter")
        expect(acme).to_have_attribute("aria-pressed", "true")
        page.keyboard.press("Escape")
        expect(acme).to_have_attribute("aria-pressed", "false")
        burst.focus()
        page.keyboard.press("Space")
        expect(burst).to_have_attribute("aria-pressed", "true")
        expect(burst).to_be_focused()


def test_everything_is_reached_in_order_with_the_tab_key(
    browser: Browser, console: ServedConsole, engine_of: MakeEngine
):
    engine_of(SMALL, "acme", "burst")
    with opened(browser, console.url) as page:
        expect(page.get_by_role("button", name="acme")).to_be_visible()
        reached = []
        for _ in range(9):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"the focus on {reached[-1]} is seen"
        assert reached[:2] == ["Skip to the pool", "pool"]
        assert [name.split()[0] for name in reached[2:4]] == ["acme60", "burst120"]
        assert reached[4:6] == ["map", "The map as a table"]
        assert "filter" in reached
        page.evaluate("document.activeElement.blur()")
        page.locator(".skip").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#main")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cells_have_the_colours_of_their_zones_in_either_scheme(
    browser: Browser, console: ServedConsole, engine_of: MakeEngine, scheme: Scheme
):
    engine_of([IN_USE_BY_ACME, BUSY, FREE], "acme", "burst")
    with opened(browser, console.url, color_scheme=scheme) as page:
        page.get_by_role("application").wait_for()
        colours = variables(scheme)
        expected = [colours["zone-1"], colours["zone-2"], colours["free"]]
        (middles,) = cell_colours(page, 0.5)
        assert [linear(colour) for colour in middles[:3]] == expected


def test_cached_cells_are_hatched_and_borrowed_ones_have_a_border(
    browser: Browser, console: ServedConsole, engine_of: MakeEngine
):
    engine_of([IN_USE_BY_ACME, KEPT, LENT, FREE], "acme", "burst")
    with opened(browser, console.url) as page:
        page.get_by_role("application").wait_for()
        colours = variables("light")
        corners, *samples = cell_colours(page, 0.0, *(0.2 + step / 40 for step in range(24)))
        assert [linear(colour) for colour in corners[:4]] == [
            colours["zone-1"],
            colours["zone-1"],
            colours["ink"],
            colours["free-line"],
        ]
        in_use, cached, borrowed, _ = ({linear(sample[cell]) for sample in samples} for cell in range(4))
        assert in_use == {colours["zone-1"]}
        assert cached >= {colours["zone-1"], colours["surface"]}
        assert borrowed >= {colours["zone-2"], colours["surface"]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_complain_about(
    browser: Browser, console: ServedConsole, engine_of: MakeEngine, scheme: Scheme
):
    engine = engine_of(SMALL, "acme", "burst")
    engine.zones = {"burst": {"waits_for": "reserved", "waiting_requests": 1, "borrowed": 20}}
    console.add_zone("refused", status={"conditions": [NOT_READY]})
    console.add_pod("engine-1", ip="127.0.0.9")
    with opened(browser, console.url, color_scheme=scheme, bypass_csp=True) as page:
        expect(page.locator("#zone-rows")).to_contain_text("waits for blocks: they are kept for others")
        expect(page.locator("#zone-rows")).to_contain_text("no room is left")
        page.get_by_text("The map as a table").click()
        assert_accessible(page)


def test_a_narrow_window_needs_no_scrolling_sideways(browser: Browser, console: ServedConsole, engine_of: MakeEngine):
    engine_of(SMALL, "acme", "burst")
    with opened(browser, console.url, viewport={"width": 320, "height": 640}) as page:
        page.get_by_role("application").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_half_a_million_blocks_and_more_zones_than_colours_are_shown(
    browser: Browser, console: ServedConsole, engine_of: MakeEngine
):
    names = [f"tenant-{number:02}" for number in range(30)]
    blocks: list[Block] = [(names[index // 100 % 30], "cached", False) for index in range(500_000)]
    engine_of(blocks, *names)
    with opened(browser, console.url) as page:
        expect(page.locator("#blocks-summary")).to_contain_text("500,000 blocks, each cell stands for 123 blocks")
        page.get_by_role("application").focus()
        expect(page.locator("#cell")).to_contain_text("Blocks 1 to 123, in one cell: tenant-")
        swatches = page.locator("#legend canvas").evaluate_all("(all) => all.map((one) => one.toDataURL())")
        assert len(swatches) == 30
        # Seven colours with four marks: further zones repeat them, and differ by their names.
        assert len(set(swatches)) == 28


def test_a_filter_finds_one_of_many_zones(browser: Browser, console: ServedConsole, engine_of: MakeEngine):
    names = [f"tenant-{number:03}" for number in range(250)]
    engine_of([FREE], *names)
    with opened(browser, console.url) as page:
        expect(page.locator("#zones-summary")).to_have_text("the first 100 of 250 zones")
        page.get_by_label("Name contains").fill("-249")
        expect(page.locator("#zones-summary")).to_have_text("1 of 250 zones")
        expect(page.locator("#zone-rows tr")).to_have_count(1)
        page.get_by_label("Name contains").fill("missing")
        expect(page.get_by_text("No zone has a name like this.")).to_be_visible()


def test_text_from_others_is_never_markup(browser: Browser, console: ServedConsole, engine_of: MakeEngine):
    evil = "<img src=x onerror=alert(1)>"
    engine = engine_of([(evil, "cached", False)], "acme")
    engine.zones = {evil: {"auto_registered": True}}
    console.add_zone("refused", status={"conditions": [NOT_READY | {"message": evil}]})
    with opened(browser, console.url) as page:
        expect(page.get_by_role("rowheader", name=evil).first).to_contain_text(evil)
        expect(page.locator("#zone-rows")).to_contain_text(f"refused{evil}")
        assert page.locator("img[src=x]").count() == 0


def test_without_pools_it_says_how_to_make_one(browser: Browser, console: ServedConsole):
    with opened(browser, console.url) as page:
        expect(page.get_by_role("heading", name="No pools yet")).to_be_visible()
        console.add_pool()
        expect(page.get_by_role("heading", name="Pool default/demo")).to_be_visible()
        expect(page.get_by_text("No engine of this pool is ready.")).to_be_visible()


def test_an_operator_that_knows_nothing_yet_says_so(browser: Browser, console: ServedConsole):
    console.replica_state = ReplicaState(is_leading=False, is_ready=False, has_listed=False)
    with opened(browser, console.url) as page:
        expect(page.get_by_role("status").filter(has_text="has not listed the zones yet")).to_be_visible()
        expect(page.get_by_role("heading", name="No pools yet")).to_be_hidden()
        console.replica_state = ReplicaState(is_leading=False, is_ready=True, has_listed=True)
        expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
        expect(page.get_by_text("which stands by")).to_be_visible()


def test_each_of_several_engines_has_a_map(browser: Browser, console: ServedConsole, engine_of: MakeEngine):
    engine_of(SMALL, "acme", "burst")
    engine_of([BUSY] * 12, number=1)
    with opened(browser, console.url) as page:
        expect(page.locator("#blocks-summary")).to_contain_text("engine-0: 200 blocks")
        page.get_by_label("Engine", exact=True).select_option("engine-1")
        expect(page.locator("#blocks-summary")).to_contain_text("engine-1: 12 blocks")
        burst = page.locator("#zone-rows tr", has_text="burst")
        expect(burst.locator("td.number").first).to_have_text("132")


def test_an_engine_that_does_not_answer_is_named(browser: Browser, console: ServedConsole, engine_of: MakeEngine):
    engine = engine_of(SMALL, "acme", "burst")
    with opened(browser, console.url, expected="502") as page:
        page.get_by_role("application").wait_for()
        engine.stop()
        reason = "No picture of engine-0's blocks: the connection to its admin port is refused"
        expect(page.get_by_text(reason)).to_be_visible()
        expect(page.locator("#engine-rows")).to_contain_text("unreachable")


def test_an_operator_that_went_away_is_noticed(browser: Browser):
    console = ServedConsole()
    with opened_and_left(browser, console) as page:
        expect(page.get_by_role("status").filter(has_text="is the port-forward still running?")).to_be_visible()


def test_history_and_changes_grow_while_one_looks(browser: Browser, console: ServedConsole, engine_of: MakeEngine):
    engine = engine_of(SMALL, "acme", "burst")
    engine.zones = {"acme": {"reserved": 80}}
    with opened(browser, console.url) as page:
        expect(page.get_by_role("img", name="acme held between 60 and 60 of blocks")).to_be_visible()
        engine.blocks[-15:] = [KEPT] * 15
        expect(page.get_by_role("img", name="acme held between 60 and 75 of blocks")).to_be_visible()
        console.add_zone("late")
        expect(page.locator("#change-rows")).to_contain_text("lateDeclared")


@contextmanager
def opened_and_left(browser: Browser, console: ServedConsole) -> Iterator[Page]:
    """A page whose operator has ended."""
    with ExitStack() as stack:
        with console.running():
            page = stack.enter_context(opened(browser, console.url, expected="ERR_CONNECTION_REFUSED"))
            expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
        yield page
