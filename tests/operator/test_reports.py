"""What the operator accepts of a report: all that it uses, within bounds, and nothing that it can't write."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tenantzone_contract.quantity import MAX_COUNT
from tenantzone_contract.reports.parts import MAX_BLOCKS, MAX_SECONDS
from tenantzone_contract.reports.report import (
    ConfigStatus,
    LoanReport,
    Rejection,
    TierReport,
    dump_report,
    parse_report,
)
from tenantzone_contract.reports.zone_report import LatencyReport, TargetReport, ZoneReport, ZoneTierReport
from tenantzone_operator.engines.reports import max_report_bytes
from tenantzone_operator.engines.views import view
from tests.operator.objects import report, zone_report

BLOCKS = st.integers(0, MAX_BLOCKS)
COUNTS = st.integers(0, MAX_COUNT)
REASONS = ["quiet", "reclaim", "own", "relief", "watermark", "due"]
SECONDS = st.floats(0.001, MAX_SECONDS)
TARGETS = st.none() | st.builds(
    lambda target, actual, reason: TargetReport(target_seconds=target, actual_seconds=actual, reason=reason),
    SECONDS,
    st.none() | SECONDS,
    st.text(max_size=20),
)
LATENCIES = st.none() | st.builds(
    lambda token_time, first_token: LatencyReport(token_time=token_time, first_token=first_token), TARGETS, TARGETS
)
EVICTIONS = st.dictionaries(st.sampled_from(REASONS), st.integers(0, MAX_COUNT // len(REASONS)))


TIERS = st.lists(st.sampled_from(["cpu", "disk", "a-newer-one"]), unique=True)
OF_ZONES_IN_TIERS = sorted(set(ZoneTierReport.__struct_fields__) - {"tier", "byte_seconds", "effect"})


@st.composite
def zone_tiers(draw: st.DrawFn) -> tuple[ZoneTierReport, ...]:
    return tuple(
        ZoneTierReport(tier=tier, **{field: draw(COUNTS) for field in OF_ZONES_IN_TIERS}) for tier in draw(TIERS)
    )


@st.composite
def tiers(draw: st.DrawFn) -> tuple[TierReport, ...]:
    amounts = ("capacity_bytes", "held_bytes", "chunk_bytes")
    return tuple(
        TierReport(tier=tier, problem=draw(st.text(max_size=20)), **{field: draw(COUNTS) for field in amounts})
        for tier in draw(TIERS)
    )


@st.composite
def zone_reports(draw: st.DrawFn) -> ZoneReport:
    amounts = {field: draw(BLOCKS) for field in ("reserved", "limit", "in_use", "cached", "lent", "borrowed")}
    counted = ("waiting_requests", "running_requests", "prefix_query_tokens", "prefix_hit_tokens", "generation")
    return zone_report(
        draw(st.text(min_size=1, max_size=20)),
        tenant=draw(st.text(min_size=1, max_size=20)),
        state=draw(st.sampled_from(["Active", "Idle", "Evicted"])),
        waits_for=draw(st.sampled_from([None, "limit", "reserved", "in_use"])),
        auto_registered=draw(st.booleans()),
        evictions=draw(EVICTIONS),
        latency=draw(LATENCIES),
        tiers=draw(zone_tiers()),
        **amounts,
        **{field: draw(COUNTS) for field in counted},
    )


@given(st.lists(zone_reports(), max_size=3), tiers())
def test_what_an_engine_writes_is_what_the_operator_reads(zones: list[ZoneReport], has: tuple[TierReport, ...]):
    written = report("engine-0", 77, ConfigStatus(applied_generation=3, applied_hash="sha256:x"), tuple(zones))
    loan = LoanReport(lender="a", borrower="b", blocks=3, since_unix_time=1.0, due_unix_time=None)
    written = structs.replace(written, loans=(loan,), tiers=has)

    found = parse_report(dump_report(written))

    assert found == written


def raw(**changes: Any) -> dict[str, Any]:
    written = json.loads(dump_report(report("engine-0", 100, zones=(zone_report("acme"),))))
    return written | changes


@pytest.mark.parametrize("absurd", [10**30, 10**25, 2**63, -1, 1.5, "9", True, None])
@pytest.mark.parametrize("where", ["capacityBlocks", "freeBlocks"])
def test_an_absurd_number_is_no_report(where: str, absurd: Any):
    with pytest.raises(ValueError, match=where):
        parse_report(json.dumps(raw(**{where: absurd})).encode())


@pytest.mark.parametrize("where", ["cached", "prefixQueryTokens", "generation"])
def test_nor_is_one_with_an_absurd_number_of_a_zone(where: str):
    whole = raw()
    whole["zones"][0][where] = 10**25
    with pytest.raises(ValueError, match=where):
        parse_report(json.dumps(whole).encode())


@pytest.mark.parametrize(
    "tiers",
    [
        pytest.param([{"tier": "\x1b[2J"}], id="a name that is none"),
        pytest.param([{"tier": "x" * 64}], id="a long name"),
        pytest.param([{"tier": "cpu\n"}], id="a name with a line end"),
        pytest.param([{"tier": f"tier-{number}"} for number in range(9)], id="more than any engine has"),
        pytest.param([{"tier": "cpu", "heldBytes": 2**53}], id="more than there can be"),
    ],
)
@pytest.mark.parametrize("where", ["engine", "zone"])
def test_nor_is_one_with_tiers_that_no_status_can_show(where: str, tiers: list[dict[str, Any]]):
    amounts = dict.fromkeys(("reservedBytes", "limitBytes", "heldBytes", "capacityBytes", "chunkBytes"), 1)
    whole = raw()
    (whole if where == "engine" else whole["zones"][0])["tiers"] = [amounts | tier for tier in tiers]
    with pytest.raises(ValueError, match="tiers"):
        parse_report(json.dumps(whole).encode())


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"1e999", b"1" * 5000])
def test_nor_what_is_no_number_that_json_has(number: bytes):
    text = json.dumps(raw(publishedUnixTime=12345)).encode().replace(b"12345", number)
    with pytest.raises(ValueError, match=r"."):
        parse_report(text)


@pytest.mark.parametrize("text", [b"[" * 10**6, b'{"a":' * 10**6, b"", b"null", b"\xff\xfe", b'{"version":2}'])
def test_what_is_no_report_is_an_error_and_no_crash(text: bytes):
    with pytest.raises(ValueError, match=r"."):
        parse_report(text)


UNREAD = {
    "promptTokens": 2**53,
    "awaitedReservation": 2**31,
    "level": "x" * 254,
    "blockSeconds": -1.0,
    "preemptions": -1,
}


@pytest.mark.parametrize("field", UNREAD)
def test_fields_that_the_operator_does_not_use_have_bounds(field: str):
    whole = raw()
    whole["zones"][0][field] = UNREAD[field]
    with pytest.raises(ValueError, match=field):
        parse_report(json.dumps(whole).encode())


def test_a_tier_may_store_more_bytes_than_other_counters_can_count():
    zone = zone_report("acme", tiers=(ZoneTierReport("cpu", 0, 0, 0, stored_bytes=2**60, loaded_bytes=2**70),))
    (tier,) = parse_report(dump_report(report("engine-0", zones=(zone,)))).zones[0].tiers
    assert (tier.stored_bytes, tier.loaded_bytes) == (2**60, 2**70)


def test_a_report_may_lack_what_the_operator_does_not_use():
    status = ConfigStatus(rejected=Rejection(error="too old", unix_time=1.0))
    written = report("engine-0", config=status, zones=(zone_report("acme"),))
    whole = json.loads(dump_report(written))
    del whole["startedUnixTime"], whole["identity"]["kind"], whole["config"]["rejected"]["unixTime"]
    for field in ("promptTokens", "level", "blockSeconds", "awaitedReservation"):
        del whole["zones"][0][field]
    assert view(parse_report(json.dumps(whole).encode())) == view(written)


def test_a_newer_engine_may_say_more():
    whole = raw(colour="red")
    whole["zones"][0] |= {"shade": [1, 2], "evictions": {"new-reason": 3}, "waitsFor": "novelty"}
    found = parse_report(json.dumps(whole).encode())
    assert (found.zones[0].evictions, found.zones[0].waits_for) == ({"new-reason": 3}, "novelty")


@pytest.mark.parametrize("name", ["saltKey", "identity", "adminPort"])
def test_a_report_without_what_each_engine_reports_is_no_report(name: str):
    whole = raw()
    del whole[name]
    with pytest.raises(ValueError, match=name):
        parse_report(json.dumps(whole).encode())


def test_sums_stay_within_what_a_status_can_hold():
    zone = zone_report("acme", evictions=dict.fromkeys(("own", "quiet", "reclaim"), MAX_COUNT))
    found = view(parse_report(dump_report(report("engine-0", zones=(zone,)))))
    assert found.zones["acme"].blocks_evicted == MAX_COUNT


def test_an_engines_error_is_one_line_without_control_characters():
    error = "\x1b]0;owned\x07\x1b[2J first\r\nsecond\u202e\x9b31m" + "x" * 5000
    status = ConfigStatus(rejected=Rejection(error=error, unix_time=0.0))
    found = view(parse_report(dump_report(report("engine-0", config=status))))
    assert len(found.nack) <= 1000
    assert found.nack.startswith("�]0;owned��[2J first second��31mxxx")


def test_a_report_may_be_as_long_as_its_zones_need():
    def longest(count: int) -> int:
        name = "z" * 63
        evictions = {f"reason-{number}": MAX_COUNT for number in range(12)}
        fields = dict.fromkeys(("reserved", "limit", "in_use", "cached", "lent", "borrowed"), MAX_BLOCKS)
        counts = dict.fromkeys(("prefix_query_tokens", "prompt_tokens", "generation_tokens"), MAX_COUNT)
        in_tiers = tuple(
            ZoneTierReport(tier=tier, **dict.fromkeys(OF_ZONES_IN_TIERS, MAX_COUNT), byte_seconds=1e21 / 3)
            for tier in ("cpu", "disk")
        )
        zones = tuple(
            zone_report(
                f"{name}{number}",
                evictions=evictions,
                tiers=in_tiers,
                **fields,
                **counts,
            )
            for number in range(count)
        )
        loans = tuple(
            LoanReport(lender=name, borrower=name, blocks=MAX_BLOCKS, since_unix_time=1e9 / 3, due_unix_time=1e9 / 3)
            for _ in range(4 * count)
        )
        whole = structs.replace(report("engine-0", zones=zones), loans=loans)
        return len(dump_report(whole))

    for count in (0, 1, 100, 1000):
        assert longest(count) <= max_report_bytes(count, may_register=False)
    assert max_report_bytes(100, may_register=False) < 500_000
    assert max_report_bytes(0, may_register=True) > longest(1000)
