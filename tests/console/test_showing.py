"""The page's data, as JSON."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from tenantzone_contract.cache.blocks import BlockKind, BlockMap
from tenantzone_contract.reports.report import (
    ConfigStatus,
    EngineReport,
    Rejection,
    TierReport,
    dump_report,
    parse_report,
)
from tenantzone_contract.reports.summary import ZoneSummary
from tenantzone_contract.reports.zone_report import ZoneReport, ZoneTierReport
from tenantzone_operator.console.live import LiveEngine
from tenantzone_operator.console.showing import show_blocks, show_pool
from tenantzone_operator.kube.resources import Pod, Zone, read_pod, read_zone
from tenantzone_operator.kube.store import View
from tests.operator.objects import body, report, zone_report


def picture(capacity: int, *kinds: BlockKind) -> BlockMap:
    return BlockMap(capacity_blocks=capacity, blocks_per_cell=1, kinds=kinds, taken_unix_time=0.0)


def kind(zone: str | None, use: str, blocks: int, borrowed: bool = False) -> BlockKind:
    return BlockKind(tenant=zone, zone=zone, use=use, borrowed=borrowed, blocks=blocks)


def test_blocks_are_added_up_by_who_has_them_zones_first_and_free_ones_last():
    shown = show_blocks(
        picture(
            200,
            kind(None, "free", 15),
            kind(None, "in_use", 5),
            kind("burst", "in_use", 100),
            kind("acme", "cached", 60),
            kind("burst", "cached", 20, borrowed=True),
        )
    )
    amounts = ("inUse", "cached", "borrowed", "blocks", "percent")
    assert [(owner["zone"], owner["isFree"], *(owner[name] for name in amounts)) for owner in shown["owners"]] == [
        ("acme", False, 0, 60, 0, 60, 30.0),
        ("burst", False, 100, 20, 20, 120, 60.0),
        (None, False, 5, 0, 0, 5, 2.5),
        (None, True, 0, 0, 0, 15, 7.5),
    ]
    assert [entry["blocks"] for entry in shown["kinds"]] == [15, 5, 100, 60, 20]


@pytest.mark.parametrize(
    ("blocks", "capacity", "percent"), [(1, 3, 33.3), (2, 3, 66.7), (2**53 - 1, 1, 100.0), (0, 0, 0)]
)
def test_a_share_of_the_engine_has_one_decimal_whatever_an_engine_says(blocks: int, capacity: int, percent: float):
    (owner,) = show_blocks(picture(capacity, kind("acme", "in_use", blocks)))["owners"]
    assert owner["percent"] == percent


def pod(name: str, ip: str = "127.0.0.1") -> Pod:
    conditions = [{"type": "Ready", "status": "True" if ip else "False"}]
    return read_pod(body(name, status={"podIP": ip, "conditions": conditions}))


def heard(name: str, rejected: str = "", *zones: ZoneReport) -> LiveEngine:
    """An engine whose latest report has this content."""
    rejection = Rejection(error=rejected, unix_time=0.0) if rejected else None
    reported = report(name, 100, ConfigStatus(applied_generation=1, rejected=rejection), zones)
    return answering(name, reported)


def answering(name: str, reported: EngineReport) -> LiveEngine:
    """An engine that has answered with this report."""
    look = LiveEngine(pod(name))
    look.hear(parse_report(dump_report(reported)), 1.0, now=0.0)
    return look


def shown_with(*engines: LiveEngine, zones: Sequence[Zone] = (), waiting: Sequence[Pod] = ()) -> dict[str, Any]:
    view = View(pool=None, zones=list(zones), leaving=[], pods=[*(engine.pod for engine in engines), *waiting])
    return show_pool(view, engines, "")


def test_an_engine_answers_or_refuses_the_config_or_is_not_reached_or_not_ready():
    silent = LiveEngine(pod("engine-2"))
    silent.lose("no route")

    engines = shown_with(
        heard("engine-0"), heard("engine-1", "limit: too low"), silent, waiting=[pod("engine-3", ip="")]
    )["engines"]

    assert [(engine["pod"], engine["state"]) for engine in engines] == [
        ("engine-0", "Answers"),
        ("engine-1", "RefusesConfig"),
        ("engine-2", "Unreachable"),
        ("engine-3", "NotReady"),
    ]
    assert [engine["message"] for engine in engines] == ["", "limit: too low", silent.error, ""]
    assert silent.error


def test_a_zone_is_shown_as_its_engines_say_in_sum():
    first = zone_report("acme", state="Idle", reserved=40, cached=5, waiting_requests=2, evictions={"own": 3})
    second = zone_report("acme", state="Active", reserved=30, in_use=7, running_requests=1, waits_for="limit")

    (zone,) = shown_with(heard("engine-0", "", first), heard("engine-1", "", second), zones=[declared("acme")])["zones"]

    assert zone.items() >= ZoneSummary.of([first, second]).fields().items()
    assert (zone["live"], zone["state"], zone["held"], zone["reserved"]) == (True, "Active", 12, 70)
    assert (zone["waitingRequests"], zone["runningRequests"], zone["waitReason"]) == (2, 1, "limit")


def in_tier(tier: str, held: int, hits: int = 0) -> ZoneTierReport:
    return ZoneTierReport(tier=tier, reserved_bytes=100, limit_bytes=900, held_bytes=held, hits=hits)


def test_what_a_zone_holds_in_tiers_is_that_of_all_engines_and_each_tier_is_shown_with_what_is_wrong():
    first = zone_report("acme", tiers=(in_tier("cpu", 70, 3), in_tier("disk", 5)))
    second = zone_report("acme", tiers=(in_tier("cpu", 30, 4),))
    engines = [heard("a", "", first), heard("b", "", second), heard("c")]
    tiers = (TierReport(tier="disk", capacity_bytes=900, held_bytes=5, chunk_bytes=1, problem="reads fail: \x1bno"),)
    reported = structs.replace(report("d", 100, ConfigStatus(applied_generation=1), ()), tiers=tiers)
    engines.append(answering("d", reported))

    shown = shown_with(*engines, zones=[declared("acme")])

    (acme,) = shown["zones"]
    assert [(row["tier"], row["held"], row["reserved"], row["hits"]) for row in acme["tiers"]] == [
        ("cpu", 100, 200, 7),
        ("disk", 5, 100, 0),
    ]
    assert shown["tiers"] == [
        {
            "pod": "d",
            "tier": "disk",
            "heldBytes": 5,
            "capacityBytes": 900,
            "problem": "reads fail: \N{REPLACEMENT CHARACTER}no",
        }
    ]
    (of_status,) = shown_with(zones=[declared("acme", tiers=[{"tier": "cpu", "held": 7}])])["zones"]
    assert of_status["tiers"][0]["held"] == 7


def test_seats_and_computed_tokens_are_those_of_all_engines():
    first = zone_report("acme", reserved_seats=3, computed_tokens=100)
    second = zone_report("acme", reserved_seats=2, computed_tokens=40)
    third = zone_report("burst", computed_tokens=60)
    shown = shown_with(
        heard("a", "", first), heard("b", "", second, third), zones=[declared("acme"), declared("burst")]
    )
    assert [(zone["reservedSeats"], zone["computedTokens"]) for zone in shown["zones"]] == [(5, 140), (0, 60)]
    assert shown["computedTokens"] == 200


def test_a_missed_latency_target_is_shown_as_the_status_says():
    missed = {"type": "LatencyTargetMet", "status": "False", "reason": "OwnLoad", "message": "too much"}
    (zone,) = shown_with(zones=[declared("acme", conditions=[missed])])["zones"]
    assert zone["latency"] == {"status": "False", "reason": "OwnLoad", "message": "too much"}
    (zone,) = shown_with(zones=[declared("acme")])["zones"]
    assert zone["latency"] == {}


def test_a_zone_that_no_engine_reports_is_shown_as_its_status_says():
    amounts = {"state": "Idle", "held": 5, "inUse": 1, "cached": 4, "hitPercent": 12}
    rows = [{"pod": "engine-0", "reserved": 40, "limit": 90}, {"pod": "engine-1", "reserved": 30, "limit": 80}]

    (zone,) = shown_with(zones=[declared("acme", **amounts, engines=rows)])["zones"]

    assert zone.items() >= {"live": False, **amounts, "reserved": 70, "limit": 170, "evictions": None}.items()


def declared(name: str, **status: Any) -> Zone:
    return read_zone(body(name, spec={"pool": "demo"}, status=status))
