"""What one zone comes to in tiers, over engines: for the status, the operator's page and the plugin alike."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from tenantzone_contract.quantity import shown_bytes
from tenantzone_contract.report import MAX_COUNT
from tenantzone_contract.tiers import SHARED_TIER, TIER_NAMES


class ZoneInTier(Protocol):
    """What a summary needs to know of a zone in one tier of one engine; the words are the report's."""

    @property
    def tier(self) -> str: ...
    @property
    def held_bytes(self) -> int: ...
    @property
    def reserved_bytes(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def evictions(self) -> int: ...
    @property
    def writes_refused(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TierSummary:
    """One zone in one tier, over some engines: bytes, and chunks since the engines' start."""

    tier: str
    held: int = 0
    reserved: int = 0
    hits: int = 0
    evictions: int = 0
    writes_refused: int = 0

    @property
    def shown(self) -> str:
        """What is held, and what is reserved, for people: ``7.9Gi/8Gi``. Of a shared tier no zone reserves any."""
        held = shown_bytes(self.held)
        return held if self.tier == SHARED_TIER else f"{held}/{shown_bytes(self.reserved)}"

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Self:
        """What a row of a status says."""
        names = ("held", "reserved", "hits", "evictions", "writesRefused")
        return cls(row["tier"], *(row.get(name, 0) for name in names))

    def fields(self) -> dict[str, Any]:
        """All of it, in the words of the API."""
        return {
            "tier": self.tier,
            "summary": self.shown,
            "held": self.held,
            "reserved": self.reserved,
            "hits": self.hits,
            "evictions": self.evictions,
            "writesRefused": self.writes_refused,
        }


def tier_summaries(reported: Iterable[ZoneInTier]) -> list[TierSummary]:
    """What engines say of a zone, added up for each tier; the fastest tier first."""
    found: dict[str, list[ZoneInTier]] = {}
    for each in reported:
        found.setdefault(each.tier, []).append(each)
    return [_added_up(tier, found[tier]) for tier in sorted(found, key=_place)]


def _added_up(tier: str, reported: list[ZoneInTier]) -> TierSummary:
    # Of a shared tier all engines tell the same bytes; what was counted is each one's own.
    in_all = max if tier == SHARED_TIER else sum
    # Engines are not believed: a sum may be more than a status can show.
    return TierSummary(
        tier,
        held=min(in_all(each.held_bytes for each in reported), MAX_COUNT),
        reserved=min(in_all(each.reserved_bytes for each in reported), MAX_COUNT),
        hits=min(sum(each.hits for each in reported), MAX_COUNT),
        evictions=min(sum(each.evictions for each in reported), MAX_COUNT),
        writes_refused=min(sum(each.writes_refused for each in reported), MAX_COUNT),
    )


def _place(tier: str) -> tuple[int, str]:
    """Where a tier comes in a list: those of a newer engine last."""
    known: Mapping[str, int] = {name: place for place, name in enumerate((*TIER_NAMES, SHARED_TIER))}
    return known.get(tier, len(known)), tier
