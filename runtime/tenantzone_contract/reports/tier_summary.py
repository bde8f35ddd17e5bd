"""Sums one zone's numbers in each tier over engines, for the status, the operator's console and the kubectl plugin."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from tenantzone_contract.quantity import MAX_COUNT, shown_bytes
from tenantzone_contract.reports.zone_report import ZoneTierReport
from tenantzone_contract.zone_config.tiers import SHARED_TIER, TIER_NAMES


@dataclass(frozen=True, slots=True)
class TierSummary:
    """The numbers of one zone in one tier, summed over engines.

    ``held`` and ``reserved`` are in bytes; the other numbers count chunks since the engines started.
    """

    tier: str
    held: int = 0
    reserved: int = 0
    hits: int = 0
    evictions: int = 0
    writes_refused: int = 0

    @property
    def shown(self) -> str:
        """Held and reserved bytes in readable form, such as ``7.9Gi/8Gi``. For a shared tier, only the held bytes."""
        held = shown_bytes(self.held)
        return held if self.tier == SHARED_TIER else f"{held}/{shown_bytes(self.reserved)}"

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Self:
        """Returns the summary in one tier's row of a zone's status."""
        names = ("held", "reserved", "hits", "evictions", "writesRefused")
        return cls(row["tier"], *(row.get(name, 0) for name in names))

    def fields(self) -> dict[str, Any]:
        """Returns all fields, by their names in the API."""
        return {
            "tier": self.tier,
            "summary": self.shown,
            "held": self.held,
            "reserved": self.reserved,
            "hits": self.hits,
            "evictions": self.evictions,
            "writesRefused": self.writes_refused,
        }


def tier_summaries(reported: Iterable[ZoneTierReport]) -> list[TierSummary]:
    """Returns the sum of the engines' reports on a zone for each tier, the fastest tier first."""
    found: dict[str, list[ZoneTierReport]] = {}
    for each in reported:
        found.setdefault(each.tier, []).append(each)
    return [_added_up(tier, found[tier]) for tier in sorted(found, key=_place)]


def _added_up(tier: str, reported: list[ZoneTierReport]) -> TierSummary:
    # In a shared tier all engines report the same bytes, so take the maximum. Each engine counts only its own events.
    in_all = max if tier == SHARED_TIER else sum
    # The engines' reports are not trusted, so a sum may exceed the maximum number in a status.
    return TierSummary(
        tier,
        held=min(in_all(each.held_bytes for each in reported), MAX_COUNT),
        reserved=min(in_all(each.reserved_bytes for each in reported), MAX_COUNT),
        hits=min(sum(each.hits for each in reported), MAX_COUNT),
        evictions=min(sum(each.evictions for each in reported), MAX_COUNT),
        writes_refused=min(sum(each.writes_refused for each in reported), MAX_COUNT),
    )


def _place(tier: str) -> tuple[int, str]:
    """Returns a sort key for a tier; tiers that only newer engines know sort last."""
    known: Mapping[str, int] = {name: place for place, name in enumerate((*TIER_NAMES, SHARED_TIER))}
    return known.get(tier, len(known)), tier
