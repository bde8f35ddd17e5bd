"""Builders of reports and answers: a test gives only what it is about."""

import time
from typing import Any

from tenantzone_cli.live import EngineAnswer
from tenantzone_contract.reports.report import ConfigStatus, EngineReport, LoanReport, TierReport
from tenantzone_contract.reports.zone_report import ZoneReport
from tests.reported import SETTINGS


def zone_report(name: str, **fields: Any) -> ZoneReport:
    """An empty zone with the given fields."""
    empty = {"generation": 1, "state": "Evicted", "reserved": 0, "limit": 100, "in_use": 0, "cached": 0}
    return ZoneReport(**{"name": name, "tenant": name} | empty | fields)


def engine_report(
    *zones: ZoneReport,
    pod: str = "engine-0",
    loans: tuple[LoanReport, ...] = (),
    config: ConfigStatus | None = None,
    tiers: tuple[TierReport, ...] = (),
    published: float | None = None,
) -> EngineReport:
    return EngineReport(
        engine_version="simulated",
        pod=pod,
        capacity_blocks=100,
        block_size_tokens=16,
        free_blocks=50,
        config=config or ConfigStatus(),
        **SETTINGS,
        tiers=tiers,
        zones=zones,
        loans=loans,
        started_unix_time=0.0,
        published_unix_time=time.time() if published is None else published,
    )


def answer(report: EngineReport | None, *, pod: str = "engine-0", **fields: Any) -> EngineAnswer:
    return EngineAnswer(**{"pool": ("shop", "demo"), "pod": pod, "report": report} | fields)
