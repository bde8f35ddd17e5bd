"""The engine's report between versions of engine and operator."""

import json

import msgspec
import pytest
from msgspec import structs

from tenantzone_contract.reports.report import ConfigStatus, EngineReport, LoanReport, dump_report, parse_report
from tenantzone_contract.reports.zone_report import ZoneReport
from tests.reported import SETTINGS

REPORT = EngineReport(
    engine_version="0.32.0",
    capacity_blocks=255,
    block_size_tokens=16,
    free_blocks=255,
    config=ConfigStatus(),
    **SETTINGS,
    started_unix_time=1.0,
    published_unix_time=2.0,
)


@pytest.mark.parametrize("zones", [0, 1, 3])
def test_what_is_written_is_what_is_read(zones: int):
    loans = (LoanReport(lender="a", borrower="b", blocks=3, since_unix_time=1.0),)
    whole = structs.replace(
        REPORT, loans=loans, zones=tuple(msgspec.convert(zone_report(name=f"ä{n}"), ZoneReport) for n in range(zones))
    )

    assert parse_report(dump_report(whole)) == whole


@pytest.mark.parametrize("number", [499, 500, 501, 1500])
def test_a_long_report_is_encoded_in_parts_and_read_as_a_whole(number: int):
    """One call that encodes all zones would block all Python threads."""
    zone = msgspec.convert(zone_report(name='"zones":[],"loans":[]'), ZoneReport)
    loan = LoanReport(lender="a", borrower="b", blocks=3, since_unix_time=1.0)
    whole = msgspec.structs.replace(REPORT, zones=(zone,) * number, loans=(loan,) * number, pod='"zones":[],"loans":[]')
    assert dump_report(whole) == msgspec.json.encode(whole)
    assert parse_report(dump_report(whole)) == whole


@pytest.mark.parametrize("missing", ["saltKey", "identity", "adminPort"])
def test_a_report_without_its_security_settings_is_refused(missing: str):
    """A default would claim, for example, that the admin port is protected."""
    raw = json.loads(dump_report(REPORT))
    del raw[missing]
    with pytest.raises(ValueError, match=missing):
        parse_report(json.dumps(raw))


def test_fields_of_a_newer_engine_are_ignored():
    raw = json.loads(dump_report(REPORT))
    assert parse_report(json.dumps(raw | {"colour": "red"})) == REPORT


@pytest.mark.parametrize("text", ["", "{}", "[]", "not json"])
def test_what_is_no_report_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        parse_report(text)


def test_a_report_of_another_version_is_refused():
    raw = json.loads(dump_report(REPORT))
    with pytest.raises(ValueError, match="version"):
        parse_report(json.dumps(raw | {"version": 2}))


def zone_report(**fields: object) -> dict[str, object]:
    known = {"name": "acme", "tenant": "acme", "generation": 1, "state": "Active", "reserved": 0, "limit": 255}
    return {**known, "inUse": 0, "cached": 0, **fields}


def written(**fields: object) -> str:
    """The report of an engine whose one zone has these fields."""
    return json.dumps(json.loads(dump_report(REPORT)) | {"zones": [zone_report(**fields)]})


def test_evictions_are_read_as_they_were_written():
    report = parse_report(written(evictions={"reclaim": 4, "own": 3}))
    assert parse_report(dump_report(report)) == report
    assert report.zones[0].evictions == {"reclaim": 4, "own": 3}


def test_words_that_only_a_newer_engine_knows_are_kept():
    (zone,) = parse_report(written(evictions={"novel": 2}, waitsFor="novelty", state="Drained")).zones
    assert (zone.evictions, zone.waits_for, zone.state) == ({"novel": 2}, "novelty", "Drained")


def test_a_kind_of_identity_that_only_a_newer_engine_has_is_kept():
    raw = json.loads(dump_report(REPORT))
    raw["identity"]["kind"] = "Passkeys"
    assert parse_report(json.dumps(raw)).identity.kind == "Passkeys"


@pytest.mark.parametrize("value", [5, {"own": -1}, {"own": "many"}])
def test_evictions_that_are_no_counts_are_refused(value):
    with pytest.raises(ValueError, match="evict"):
        parse_report(written(evictions=value))


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "-Infinity", "-1", "1e30", "1e999", "[]", '"long"'])
@pytest.mark.parametrize("name", ["targetSeconds", "actualSeconds"])
def test_times_that_can_not_be_shown_are_refused(name, seconds):
    text = written(latency={"tokenTime": {"targetSeconds": 0.05, name: 12345}}).replace("12345", seconds)
    with pytest.raises(ValueError, match=rf"{name}|JSON is malformed"):
        parse_report(text)


def test_a_reason_as_long_as_a_book_is_refused():
    with pytest.raises(ValueError, match="reason"):
        parse_report(written(latency={"tokenTime": {"targetSeconds": 0.05, "reason": "x" * 1000}}))
