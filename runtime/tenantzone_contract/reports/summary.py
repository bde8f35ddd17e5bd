"""Sums one zone's numbers over engines, for the zone's status, the operator's console and the kubectl plugin."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, get_args

from tenantzone_contract.quantity import MAX_COUNT
from tenantzone_contract.reports.words import ZoneState

STATES: Final[tuple[ZoneState, ...]] = get_args(ZoneState)
"""All states of a zone, the busiest first."""

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
"""Those of :meth:`ZoneSummary.fields` that a zone's status has twice: for all engines together and per engine."""


class ZoneInEngine(Protocol):
    """Those fields of an engine's report on a zone that a summary needs."""

    @property
    def state(self) -> str: ...
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


def busiest(states: Iterable[str]) -> ZoneState | None:
    """Returns the busiest state, or None if no state is known. Unknown states of newer engines are ignored."""
    reported = set(states)
    return next((state for state in STATES if state in reported), None)


@dataclass(frozen=True, slots=True)
class ZoneSummary:
    """The numbers of one zone, summed over engines. Amounts are in KV-cache blocks; an unknown number is None."""

    state: ZoneState | None = None
    reserved: int | None = None
    limit: int | None = None
    in_use: int | None = None
    cached: int | None = None
    lent: int | None = None
    borrowed: int | None = None
    evictions: int | None = None
    """Number of blocks evicted since the engines started."""
    hit_percent: int | None = None
    """Percentage of prompt tokens found in the prefix cache since the engines started; None if there were no tokens."""
    recomputed_percent: int | None = None
    """Percentage of computed tokens that were recomputed after a preemption, since the engines started.

    Rejected draft tokens do not count as computed. None if there were no tokens.
    """

    @property
    def held(self) -> int | None:
        return None if self.in_use is None or self.cached is None else self.in_use + self.cached

    @classmethod
    def of(cls, engines: Iterable[ZoneInEngine]) -> Self:
        """Returns the sum of the engines' reports on the zone."""
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
        """Returns the summary in a zone's status, or in one engine's row of the status."""
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
        """Returns all fields, by their names in the API."""
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
        """Returns the fields for a status, without unknown numbers."""
        fields = self.fields()
        return {name: fields[name] for name in STATUS_FIELDS if fields[name] is not None}


def _percent(part: int, whole: int) -> int | None:
    # The engines' reports are not trusted, so the part may exceed the whole.
    return min(100, 100 * part // whole) if whole else None


def _in_sum(status: Mapping[str, Any], name: str) -> int | None:
    """Returns an amount summed over the engines in a status. If none has it, returns the status's own amount."""
    rows = [row[name] for row in status.get("engines") or () if name in row]
    return sum(rows) if rows else status.get(name)
