"""The table of ``top``: its content, its order, and rates of change. All pure."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_cli.names import SORTS
from tenantzone_cli.resources import read_zone
from tenantzone_cli.table import duration, render
from tenantzone_cli.views.rows import Rates, Row, live_rows, status_rows
from tenantzone_cli.views.top import Selection, document, ordered, silent_engines, table
from tenantzone_cli.watch import screen
from tenantzone_contract.reports.summary import ZoneSummary
from tenantzone_contract.reports.zone_report import ZoneTierReport
from tests.cli.reports import answer, engine_report, zone_report
from tests.operator.objects import body

EVERYWHERE = Selection(None, engines=True)


def zone(name: str, **status: Any) -> Any:
    metadata = {"namespace": "shop"}
    return read_zone(body(name, metadata=metadata, spec={"pool": "demo"}, status=status))


def row(name: str, engine: str = "", rate: float | None = None, **amounts: Any) -> Row:
    return Row("shop", name, "demo", engine, "True", ZoneSummary(**amounts), evictions_per_second=rate)


def test_a_status_becomes_one_row_for_the_zone_and_one_for_each_engine():
    amounts = {"held": 3, "inUse": 1, "cached": 2}
    engines = [{"pod": "engine-0", "acknowledged": True, **amounts}, {"pod": "engine-1", "acknowledged": False}]

    whole, first, second = status_rows([zone("acme", **amounts, lent=2, engines=engines)])

    assert (whole.summary.held, whole.summary.lent, whole.summary.borrowed) == (3, 2, None)
    assert (first.engine, first.summary.held, first.ready) == ("engine-0", 3, "True")
    assert (second.engine, second.summary.held, second.ready) == ("engine-1", None, "False")


def test_the_recomputed_share_has_a_column():
    lost = zone_report("acme", computed_first_tokens=60, recomputed_tokens=40)
    rows = list(live_rows([zone("acme"), zone("burst")], [answer(engine_report(lost, zone_report("burst")))]))
    head, acme, burst = (line.split() for line in table(rows, Selection("shop")))
    column = head.index("RECOMPUTED%")
    assert (acme[column], burst[column]) == ("40", "-")
    zones = json.loads(document(rows, EVERYWHERE, indent=None))["zones"]
    assert [each["recomputedPercent"] for each in zones] == [40, None]


def test_reports_of_several_engines_add_up():
    one = zone_report("acme", state="Idle", cached=5, prefix_query_tokens=10, prefix_hit_tokens=5)
    two = zone_report("acme", state="Active", in_use=7, prefix_query_tokens=30, prefix_hit_tokens=0)
    answers = [
        answer(engine_report(one)),
        answer(engine_report(two, pod="engine-1"), pod="engine-1"),
        answer(None, pod="engine-2", error="gone"),
    ]

    whole, *engines = live_rows([zone("acme")], answers)

    assert whole.summary == ZoneSummary.of([one, two])
    assert (whole.summary.state, whole.summary.held, whole.summary.hit_percent) == ("Active", 12, 12)
    assert [row.engine for row in engines] == ["engine-0", "engine-1"]


def in_tier(tier: str, held: int, reserved: int = 0) -> ZoneTierReport:
    return ZoneTierReport(tier=tier, held_bytes=held, reserved_bytes=reserved, limit_bytes=2**40)


def test_tiers_have_columns_where_there_are_any():
    reported = {"tier": "cpu", "held": 2**30, "reserved": 2**31, "hits": 5}
    (of_status,) = status_rows([zone("acme", tiers=[reported])])
    reports = [zone_report("acme", tiers=(in_tier("cpu", 2**30, 2**31), in_tier("disk", 7))), zone_report("burst")]
    rows = list(live_rows([zone("acme"), zone("burst")], [answer(engine_report(*reports))]))

    assert table([of_status], Selection("shop"))[1].split()[-2] == "1Gi/2Gi"
    head, acme, burst = (line.split() for line in table(rows, Selection("shop")))
    assert head[-3:] == ["CPU", "DISK", "READY"]
    assert (acme[-3:-1], burst[-3:-1]) == (["1Gi/2Gi", "7/0"], ["-", "-"])
    assert "CPU" not in table([row("a")], Selection("shop"))[0]
    zones = json.loads(document(rows, EVERYWHERE, indent=None))["zones"]
    assert zones[0]["tiers"][0] == {
        "tier": "cpu",
        "summary": "1Gi/2Gi",
        "held": 2**30,
        "reserved": 2**31,
        "hits": 0,
        "evictions": 0,
        "writesRefused": 0,
    }
    assert zones[0]["engines"][0]["tiers"] == zones[0]["tiers"]
    assert "tiers" not in zones[1]


def test_a_zone_that_no_engine_reports_has_no_figures():
    (whole,) = live_rows([zone("acme")], [answer(None, error="gone")])

    assert whole.summary == ZoneSummary()


def test_an_auto_registered_zone_is_not_taken_for_a_tenantzone_of_the_same_name():
    guest = zone_report("acme", tenant="acme", auto_registered=True, cached=9)
    mine = zone_report("acme", tenant="other", cached=1)

    found = [row for row in live_rows([zone("acme")], [answer(engine_report(guest, mine))]) if not row.engine]

    assert [(row.summary.held, row.is_registered) for row in found] == [(1, False), (9, True)]


@pytest.mark.parametrize("sort", SORTS)
def test_engines_stay_below_their_zone_whatever_is_sorted_by(sort: str):
    rows = [
        row(name, engine, cached=0, in_use=amount, evictions=amount, rate=float(amount))
        for name, amount in (("a", 1), ("b", 3), ("c", 2))
        for engine in ("", "engine-0", "engine-1")
    ]

    names = [(row.zone, row.engine) for row in ordered(rows, sort)]

    assert [name for name, engine in names if not engine] == (
        ["b", "c", "a"] if sort in ("held", "in-use", "evictions", "rate") else ["a", "b", "c"]
    )
    for index in range(0, 9, 3):
        assert names[index : index + 3] == [(names[index][0], engine) for engine in ("", "engine-0", "engine-1")]


def test_what_is_not_known_is_sorted_last():
    rows = [row("a"), row("b", in_use=0, cached=0), row("c", in_use=0, cached=5)]

    assert [row.zone for row in ordered(rows, "held")] == ["c", "b", "a"]


def test_the_table_hides_engines_unless_they_are_asked_for():
    rows = [row("a"), row("a", "engine-0")]

    assert len(table(rows, Selection("shop"))) == 2
    assert len(table(rows, Selection("shop", engines=True))) == 3


def test_the_namespace_is_shown_if_there_may_be_several():
    assert table([row("a")], Selection(None))[0].startswith("NAMESPACE  NAME")
    assert table([row("a")], Selection("shop"))[0].startswith("NAME")


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (Selection("shop"), "no TenantZones in namespace shop"),
        (Selection(None, pool="demo"), "no TenantZones in any namespace and pool demo"),
    ],
)
def test_an_empty_table_says_where_was_looked(selection: Selection, said: str):
    assert table([], selection) == [said]


def test_the_document_has_each_zone_with_its_engines():
    rows = [row("a", in_use=1, cached=0, rate=0.5), row("a", "engine-0"), row("b")]

    zones = json.loads(document(rows, EVERYWHERE, indent=None))["zones"]

    assert [(zone["name"], zone["ready"], zone["held"], zone["evictionsPerSecond"]) for zone in zones] == [
        ("a", "True", 1, 0.5),
        ("b", "True", None, None),
    ]
    assert [engine["pod"] for engine in zones[0]["engines"]] == ["engine-0"]


def test_engines_that_were_asked_in_vain_are_named_with_what_to_do():
    forbidden = answer(None, error="no", is_forbidden=True)
    gone = answer(None, pod="engine-1", error="refused")

    first, second = silent_engines([forbidden, answer(engine_report()), gone])

    assert first == "shop/engine-0: no; this requires the right to get pods/proxy, so leave out --live"
    assert second == "shop/engine-1: refused"


def rate(rates: Rates, now: float, evictions: int | None) -> float | None:
    (rated,) = rates.add([row("a", evictions=evictions)], now)
    return rated.evictions_per_second


def test_one_look_gives_no_rate():
    assert rate(Rates(), 0.0, 100) is None


def test_the_rate_is_over_the_window_not_over_the_last_look():
    rates = Rates(window_seconds=10.0)
    for second, count in ((0, 0), (2, 20), (4, 20), (6, 60)):
        rate(rates, float(second), count)

    assert rate(rates, 8.0, 80) == 10.0
    assert rate(rates, 16.0, 160) == 10.0


def test_looks_that_are_further_apart_than_the_window_give_a_rate_all_the_same():
    rates = Rates(window_seconds=10.0)
    rate(rates, 0.0, 0)

    assert rate(rates, 30.0, 60) == 2.0


def test_an_engine_that_has_started_again_has_no_rate_at_first():
    rates = Rates()
    rate(rates, 0.0, 100)

    assert rate(rates, 2.0, 4) is None
    assert rate(rates, 4.0, 8) == 2.0


def test_a_zone_that_was_away_begins_anew():
    rates = Rates()
    rate(rates, 0.0, 100)
    rates.add([], 2.0)

    assert rate(rates, 4.0, 200) is None


@given(st.lists(st.tuples(st.floats(0.1, 5.0), st.integers(0, 50)), min_size=2, max_size=30))
def test_a_rate_lies_between_the_slowest_and_the_fastest_step(steps: list[tuple[float, int]]):
    rates, now, count = Rates(), 0.0, 0
    rate(rates, now, count)
    for seconds, more in steps:
        now, count = now + seconds, count + more
        seen = rate(rates, now, count)
        per_step = [more / seconds for seconds, more in steps]
        assert seen is not None
        assert min(per_step) - 1e-6 <= seen <= max(per_step) + 1e-6


@given(
    st.lists(
        st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=9), min_size=3, max_size=3),
        max_size=5,
    )
)
def test_columns_are_aligned(rows: list[list[str]]):
    headers = ("LEFT", "MIDDLE", "RIGHT")
    lines = list(render(headers, rows))

    assert len(lines) == len(rows) + 1
    widths = [max(len(row[column]) for row in (headers, *rows)) for column in range(3)]
    for line, cells in zip(lines, (headers, *rows), strict=True):
        starts = (0, widths[0] + 2, widths[0] + widths[1] + 4)
        for start, width, cell in zip(starts, widths, cells, strict=True):
            assert line[start : start + width].strip() == cell


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "0s"), (0.4, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")],
)
def test_a_duration_is_short(seconds: float, shown: str):
    assert duration(seconds) == shown


@given(st.integers(0, 60), st.integers(3, 50), st.integers(1, 200))
def test_a_terminal_never_scrolls(count: int, height: int, width: int):
    text = screen([f"line {index:03} " + "x" * 50 for index in range(count)], (width, height))

    shown = text.split("\n")
    assert len(shown) <= height
    assert all(len(line.removeprefix("\033[H").replace("\033[K", "").replace("\033[J", "")) <= width for line in shown)


def test_lines_that_do_not_fit_are_counted():
    text = screen([f"line {index}" for index in range(10)], (80, 5))

    assert "line 2" in text
    assert "line 3" not in text
    assert "7 more lines" in text
