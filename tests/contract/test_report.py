"""The engine's report between versions of engine and operator."""

import json

import pytest

from tenantzone_contract.report import ConfigStatus, EngineReport, parse_report

REPORT = EngineReport(
    engine_version="0.32.0",
    capacity_blocks=255,
    block_size_tokens=16,
    free_blocks=255,
    config=ConfigStatus(),
    started_unix_time=1.0,
    published_unix_time=2.0,
)


def test_what_is_written_is_what_is_read():
    assert parse_report(REPORT.model_dump_json(by_alias=True)) == REPORT


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
