"""What one zone comes to, in one engine or over several: for the status, the operator's page and the plugin alike."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, get_args

from tenantzone_contract.report import MAX_COUNT, ZoneState

STATES: Final[tuple[ZoneState, ...]] = get_args(ZoneState)
"""The busiest first."""

STATUS_FIELDS: Final = (
    "state",
    "held",
    "inUse",
    "cached",
    "lent",
    "borrowed",
    "evictions",
    "hitPercent",
    "recomputedPercent",
)
"""Of :meth:`ZoneSummary.fields`, what a zone's status says of all engines, and of each."""


class ZoneInEngine(Protocol):
    """What a summary needs to know of a zone in one engine; the words are the report's."""

    @property
    def state(self) -> ZoneState: ...
    @property
    def reserved(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def in_use(self) -> int: ...
    @property
    def cached(self) -> int: ...
    @property
    def lent(self) -> int: ...
    @property
    def borrowed(self) -> int: ...
    @property
    def blocks_evicted(self) -> int: ...
    @property
    def prefix_query_tokens(self) -> int: ...
    @property
    def prefix_hit_tokens(self) -> int: ...
    @property
    def computed_first_tokens(self) -> int: ...
    @property
    def recomputed_tokens(self) -> int: ...


def busiest(states: Iterable[ZoneState]) -> ZoneState:
    """The state of what has these in several places; of nothing: ``Evicted``."""
    return min(states, key=STATES.index, default="Evicted")


@dataclass(frozen=True, slots=True)
class ZoneSummary:
    """One zone, over some engines. Amounts are KV-cache blocks; None: nobody says."""

    state: ZoneState | None = None
    reserved: int | None = None
    limit: int | None = None
    in_use: int | None = None
    cached: int | None = None
    lent: int | None = None
    borrowed: int | None = None
    evictions: int | None = None
    """Blocks, since the engines' start."""
    hit_percent: int | None = None
    """Of the prompts' tokens since the engines' start; None, too, if there were none."""
    recomputed_percent: int | None = None
    """Of the tokens that steps computed since the engines' start, those that preemptions had lost. Drafts that were
    rejected are left out. None, too, if there were no tokens."""

    @property
    def held(self) -> int | None:
        return None if self.in_use is None or self.cached is None else self.in_use + self.cached

    @classmethod
    def of(cls, engines: Iterable[ZoneInEngine]) -> Self:
        """What the engines say of the zone, added up."""
        zones = list(engines)
        if not zones:
            return cls()
        return cls(
            state=busiest(zone.state for zone in zones),
            reserved=sum(zone.reserved for zone in zones),
            limit=sum(zone.limit for zone in zones),
            in_use=sum(zone.in_use for zone in zones),
            cached=sum(zone.cached for zone in zones),
            lent=sum(zone.lent for zone in zones),
            borrowed=sum(zone.borrowed for zone in zones),
            evictions=min(sum(zone.blocks_evicted for zone in zones), MAX_COUNT),
            hit_percent=_percent(
                sum(zone.prefix_hit_tokens for zone in zones), sum(zone.prefix_query_tokens for zone in zones)
            ),
            recomputed_percent=_percent(
                sum(zone.recomputed_tokens for zone in zones),
                sum(zone.computed_first_tokens + zone.recomputed_tokens for zone in zones),
            ),
        )

    @classmethod
    def read(cls, status: Mapping[str, Any]) -> Self:
        """What a zone's status says, or one of its engines' rows."""
        return cls(
            state=status.get("state"),
            reserved=_in_sum(status, "reserved"),
            limit=_in_sum(status, "limit"),
            in_use=status.get("inUse"),
            cached=status.get("cached"),
            lent=status.get("lent"),
            borrowed=status.get("borrowed"),
            evictions=status.get("evictions"),
            hit_percent=status.get("hitPercent"),
            recomputed_percent=status.get("recomputedPercent"),
        )

    def fields(self) -> dict[str, Any]:
        """All of it, in the words of the API."""
        return {
            "state": self.state,
            "reserved": self.reserved,
            "limit": self.limit,
            "held": self.held,
            "inUse": self.in_use,
            "cached": self.cached,
            "lent": self.lent,
            "borrowed": self.borrowed,
            "evictions": self.evictions,
            "hitPercent": self.hit_percent,
            "recomputedPercent": self.recomputed_percent,
        }

    def status_fields(self) -> dict[str, Any]:
        """What of it a status says; what nobody says is left out."""
        fields = self.fields()
        return {name: fields[name] for name in STATUS_FIELDS if fields[name] is not None}


def _percent(part: int, whole: int) -> int | None:
    # Engines are not believed: a part may be more than its whole.
    return min(100, 100 * part // whole) if whole else None


def _in_sum(status: Mapping[str, Any], name: str) -> int | None:
    """An amount that a status says of each engine only."""
    rows = [row[name] for row in status.get("engines") or () if name in row]
    return sum(rows) if rows else status.get(name)
