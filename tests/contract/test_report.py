"""The engine's report between versions of engine and operator."""

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tenantzone_contract.reports.report import (
    ConfigStatus,
    EngineReport,
    LoanReport,
    ZoneReport,
    dump_report,
    in_older_words,
    parse_report,
)

ROOT = Path(__file__).parents[2]
OLDER = "3656766a73cdfd4eb2d570fc55db0b11e7285c76"
"""The last commit with the older words for evictions."""
MODULE = "runtime/tenantzone_contract/reports/report.py"

REPORT = EngineReport(
    engine_version="0.32.0",
    capacity_blocks=255,
    block_size_tokens=16,
    free_blocks=255,
    config=ConfigStatus(),
    started_unix_time=1.0,
    published_unix_time=2.0,
)


@pytest.mark.parametrize("zones", [0, 1, 3])
def test_what_is_written_is_what_is_read(zones: int):
    loans = (LoanReport(lender="a", borrower="b", blocks=3, since_unix_time=1.0),)
    whole = REPORT.model_copy(
        update={
            "loans": loans,
            "zones": tuple(ZoneReport.model_validate(zone_report(name=f"ä{n}")) for n in range(zones)),
        }
    )

    assert parse_report(dump_report(whole)) == whole
    assert json.loads(dump_report(whole)) == whole.model_dump(mode="json", by_alias=True)


def test_fields_of_a_newer_engine_are_ignored():
    raw = json.loads(REPORT.model_dump_json(by_alias=True))
    assert parse_report(json.dumps(raw | {"colour": "red"})) == REPORT


@pytest.mark.parametrize("text", ["", "{}", "[]", "not json"])
def test_what_is_no_report_is_refused(text):
    with pytest.raises(ValueError, match="EngineReport"):
        parse_report(text)


def test_a_report_of_another_version_is_refused():
    raw = json.loads(REPORT.model_dump_json(by_alias=True))
    with pytest.raises(ValueError, match="version"):
        parse_report(json.dumps(raw | {"version": 2}))


NEWER_WORDS = {"reclaim": 4, "relief": 2, "watermark": 1, "own": 3}


def zone_report(**fields: object) -> dict[str, object]:
    known = {"name": "acme", "tenant": "acme", "generation": 1, "state": "Active", "reserved": 0, "limit": 255}
    return {**known, "inUse": 0, "cached": 0, **fields}


def written(**fields: object) -> str:
    """The report of an engine whose one zone has these fields."""
    return json.dumps(json.loads(REPORT.model_dump_json(by_alias=True)) | {"zones": [zone_report(**fields)]})


@pytest.fixture
def older(tmp_path: Path) -> ModuleType:
    """The module of the previous release, from the repository's history."""
    text = subprocess.run(["git", "show", f"{OLDER}:{MODULE}"], cwd=ROOT, capture_output=True, check=False)
    if text.returncode:
        pytest.skip("no history of the previous release here: git fetch --unshallow")
    path = tmp_path / "older_report.py"
    path.write_bytes(text.stdout)
    spec = importlib.util.spec_from_file_location("older_report", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_operator_of_the_release_before_reads_evictions_in_its_own_words(older):
    text = written(evictions=NEWER_WORDS, evictedBlocks=in_older_words(NEWER_WORDS))
    (zone,) = older.parse_report(text).zones
    assert zone.evicted_blocks == {"recall": 4, "reclaim": 3, "own": 3}


def test_evictions_of_an_engine_of_the_release_before_are_read_in_our_words(older):
    zone = older.ZoneReport.model_validate(zone_report(evictedBlocks={"recall": 4, "reclaim": 3, "own": 3}))
    report = older.EngineReport.model_validate(REPORT.model_dump() | {"zones": [zone]})
    (read,) = parse_report(report.model_dump_json(by_alias=True)).zones
    assert read.evicted == {"reclaim": 4, "watermark": 3, "own": 3}


def test_evictions_are_read_as_they_were_written():
    report = parse_report(written(evictions=NEWER_WORDS, evictedBlocks=in_older_words(NEWER_WORDS)))
    assert parse_report(report.model_dump_json(by_alias=True)) == report
    assert report.zones[0].evicted == NEWER_WORDS


def test_a_newer_engine_may_evict_for_a_reason_that_is_not_known():
    assert parse_report(written(evictions={"novel": 2})).zones[0].evicted == {"novel": 2}


@pytest.mark.parametrize("name", ["evictions", "evictedBlocks"])
@pytest.mark.parametrize("value", [5, {"own": -1}, {"own": "many"}])
def test_evictions_that_are_no_counts_are_refused(name, value):
    with pytest.raises(ValueError, match="evict"):
        parse_report(written(**{name: value}))


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "-Infinity", "-1", "1e30", "1e999", "[]", '"long"'])
@pytest.mark.parametrize("name", ["targetSeconds", "actualSeconds"])
def test_times_that_can_not_be_shown_are_refused(name, seconds):
    text = written(latency={"tokenTime": {"targetSeconds": 0.05, name: 12345}}).replace("12345", seconds)
    with pytest.raises(ValueError, match=name):
        parse_report(text)


def test_a_reason_as_long_as_a_book_is_refused():
    with pytest.raises(ValueError, match="reason"):
        parse_report(written(latency={"tokenTime": {"targetSeconds": 0.05, "reason": "x" * 1000}}))
