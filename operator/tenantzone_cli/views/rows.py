"""Computes the rows of ``top`` from the zones' statuses or from the engines' reports, and eviction rates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tenantzone_cli.live import EngineAnswer
from tenantzone_cli.resources import Zone
from tenantzone_contract.reports.summary import ZoneSummary
from tenantzone_contract.reports.tier_summary import TierSummary, tier_summaries
from tenantzone_contract.reports.zone_report import ZoneReport


@dataclass(frozen=True, slots=True)
class Row:
    """A row of ``top``: the amounts of one zone in one engine or in all engines together."""

    namespace: str
    zone: str
    pool: str
    engine: str
    """Name of the engine's pod; empty for the total of all engines."""
    ready: str
    summary: ZoneSummary
    is_registered: bool = False
    """Whether engines registered the zone automatically, for a tenant without a TenantZone."""
    evictions_per_second: float | None = None
    tiers: tuple[TierSummary, ...] = ()
    """Amounts of the zone in each tier. A status contains only the totals of all engines."""

    @property
    def zone_key(self) -> tuple[str, ...]:
        """Key that a zone's row shares with the rows of the zone's engines."""
        return self.namespace, self.zone, self.pool, "registered" if self.is_registered else ""

    @property
    def key(self) -> tuple[str, ...]:
        return *self.zone_key, self.engine


def status_rows(zones: Sequence[Zone]) -> Iterator[Row]:
    """Iterates over rows from the zones' statuses: a row for each zone, followed by a row for each of its engines."""
    for zone in zones:
        tiers = tuple(map(TierSummary.read, zone.status.get("tiers") or ()))
        yield Row(zone.namespace, zone.name, zone.pool, "", zone.ready, ZoneSummary.read(zone.status), tiers=tiers)
        for row in zone.engines:
            acknowledged = "True" if row.get("acknowledged") else "False"
            yield Row(zone.namespace, zone.name, zone.pool, str(row.get("pod")), acknowledged, ZoneSummary.read(row))


def live_rows(zones: Sequence[Zone], answers: Sequence[EngineAnswer]) -> Iterator[Row]:
    """Iterates over rows from the engines' reports: a row for each zone, followed by the rows of its engines.

    Rows of auto-registered zones come last.
    """
    for zone in zones:
        found = {
            answer.pod: report
            for answer in answers
            if answer.pool == (zone.namespace, zone.pool) and (report := answer.zone(zone.name)) is not None
        }
        total = Row(zone.namespace, zone.name, zone.pool, "", zone.ready, ZoneSummary.of(found.values()))
        yield from _with_engines(total, found)
    for (namespace, pool, tenant), found in _registered(answers).items():
        total = Row(namespace, tenant, pool, "", "auto", ZoneSummary.of(found.values()), is_registered=True)
        yield from _with_engines(total, found)


def _with_engines(total: Row, found: Mapping[str, ZoneReport]) -> Iterator[Row]:
    yield replace(total, tiers=_tiers(found.values()))
    for pod, report in found.items():
        yield replace(total, engine=pod, ready="", summary=ZoneSummary.of([report]), tiers=_tiers([report]))


def _tiers(reports: Iterable[ZoneReport]) -> tuple[TierSummary, ...]:
    return tuple(tier_summaries(reported for report in reports for reported in report.tiers))


def _registered(answers: Sequence[EngineAnswer]) -> dict[tuple[str, str, str], dict[str, ZoneReport]]:
    found: dict[tuple[str, str, str], dict[str, ZoneReport]] = {}
    for answer in answers:
        for zone in answer.report.zones if answer.report is not None else ():
            if zone.auto_registered:
                found.setdefault((*answer.pool, zone.tenant), {})[answer.pod] = zone
    return found


class Rates:
    """Computes each row's evictions per second over the last few seconds.

    The operator writes a status about every two seconds, so a rate between two consecutive samples would jump between
    zero and twice the actual rate.
    """

    def __init__(self, window_seconds: float = 10.0) -> None:
        self._window = window_seconds
        self._seen: dict[tuple[str, ...], list[tuple[float, int]]] = {}

    def add(self, rows: Sequence[Row], now: float) -> list[Row]:
        """Returns the rows with their rates. A row's first rate is None, as is the first after an engine's restart."""
        seen: dict[tuple[str, ...], list[tuple[float, int]]] = {}
        rated = []
        for row in rows:
            count = row.summary.evictions
            if count is None:
                rated.append(row)
                continue
            before = self._seen.get(row.key, [])
            # If all samples are older than the window, use the newest of them.
            looks = [look for look in before if now - look[0] <= self._window] or before[-1:]
            if looks and looks[-1][1] > count:
                looks = []
            seen[row.key] = [*looks, (now, count)]
            rated.append(replace(row, evictions_per_second=_rate(looks, now, count)))
        self._seen = seen
        return rated


def _rate(looks: Sequence[tuple[float, int]], now: float, count: int) -> float | None:
    if not looks or looks[0][0] >= now:
        return None
    began, first = looks[0]
    return (count - first) / (now - began)


def as_json(row: Row) -> dict[str, Any]:
    """Returns a row's fields for JSON, named as in the API."""
    fields = row.summary.fields() | {"evictionsPerSecond": row.evictions_per_second}
    return fields | ({"tiers": [tier.fields() for tier in row.tiers]} if row.tiers else {})
