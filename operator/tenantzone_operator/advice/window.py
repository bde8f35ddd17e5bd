"""Accumulates the engines' reports over a time window: the growth of counters, and samples of other amounts."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, get_args

from tenantzone_contract.reports.words import LatencyReason
from tenantzone_contract.reports.zone_report import TargetReport
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.engines.views import ZoneView

MET: float = 1.15
"""Highest ratio of a latency to its target at which the target counts as met. The engines use the same ratio."""
_MOST = 1e6
_REASONS: Final[frozenset[str]] = frozenset(get_args(LatencyReason))
_OTHER_REASON: Final = "another"
"""Placeholder for unknown reasons, so that an engine can't make the operator store thousands of reasons."""

_COUNTERS = (
    "prefix_query_tokens",
    "prefix_hit_tokens",
    "evicted_by_limit",
    "evicted_by_ttl",
    "evicted_by_watermark",
    "evicted_for_room",
)


@dataclass(slots=True)
class ZoneFigures:
    """The figures of one zone in a window, summed over all engines, in blocks unless stated otherwise."""

    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    evicted_by_limit: int = 0
    evicted_by_ttl: int = 0
    evicted_by_watermark: int = 0
    evicted_for_room: int = 0
    held: float = 0.0
    """Blocks that the zone holds, summed over the samples."""
    cached: float = 0.0
    """Cached blocks, summed over the samples."""
    reserved: float = 0.0
    """Reserved blocks, summed over the samples."""
    reported: int = 0
    """Number of samples in which at least one engine reported a latency target."""
    ratio: float = 0.0
    """Highest ratio of a latency to its target in each sample, summed over the samples."""
    missed: Counter[str] = field(default_factory=Counter)
    """Number of samples in which a target was missed, by the reason of the worst miss."""
    waited_at_limit: int = 0
    """Number of samples in which a request waited because of the zone's own limit."""

    @property
    def hit_rate(self) -> float | None:
        """Fraction of the looked-up prompt tokens that were cached; None if no tokens were looked up."""
        return self.prefix_hit_tokens / self.prefix_query_tokens if self.prefix_query_tokens else None

    @property
    def mean_ratio(self) -> float | None:
        return self.ratio / self.reported if self.reported else None

    @property
    def misses(self) -> bool:
        """Whether a latency target was missed in at least half of the samples."""
        return bool(self.reported) and 2 * self.missed.total() >= self.reported


@dataclass(slots=True)
class Figures:
    """The figures of a pool over a window."""

    looks: int = 0
    capacity: float = 0.0
    """Blocks of all engines, summed over the samples."""
    zones: dict[str, ZoneFigures] = field(default_factory=dict)
    """The figures of each zone, by name."""

    @property
    def hit_rate(self) -> float | None:
        queried = sum(each.prefix_query_tokens for each in self.zones.values())
        return sum(each.prefix_hit_tokens for each in self.zones.values()) / queried if queried else None

    @property
    def missing(self) -> list[str]:
        """Names of the zones that miss a latency target, worst first."""
        missing = [(name, each.mean_ratio or 0.0) for name, each in self.zones.items() if each.misses]
        return [name for name, _ in sorted(missing, key=lambda each: (-each[1], each[0]))]


class Window:
    """Accumulates samples of the engines' reports in one time window."""

    def __init__(self) -> None:
        self.figures = Figures()
        self._counted: dict[tuple[str, str], tuple[int, ...]] = {}

    def begin(self) -> None:
        """Begin a new window, in which counters grow from their current values."""
        self.figures = Figures()

    def look(self, observations: Sequence[Observation], names: Collection[str]) -> None:
        """Add one sample of the engines' reports on the zones with these names.

        An engine's first sample only sets the start values of its counters. Growth counts from the next sample on.
        """
        figures = self.figures
        counted: dict[tuple[str, str], tuple[int, ...]] = {}
        figures.looks += 1
        worst: dict[str, tuple[float, str]] = {}
        at_limit: set[str] = set()
        for seen in observations:
            if seen.report is None:
                # Keep the last counters, because the engine may answer again with counters that have grown.
                counted |= {key: found for key, found in self._counted.items() if key[0] == seen.pod}
                continue
            figures.capacity += seen.report.capacity_blocks
            for name, zone in seen.zones.items():
                if name not in names:
                    continue
                before = self._counted.get((seen.pod, name))
                now = tuple(getattr(zone, counter) for counter in _COUNTERS)
                # To save memory, reuse the tuple while the counters do not change: most of thousands of zones are idle.
                counted[seen.pod, name] = now = before if before == now else now
                if before is now and name not in figures.zones and _is_empty(zone):
                    continue
                found = figures.zones.setdefault(name, ZoneFigures())
                _grow(found, before, now)
                found.held += zone.in_use + zone.cached
                found.cached += zone.cached
                found.reserved += zone.reserved
                if zone.waiting_for == "limit":
                    at_limit.add(name)
                if (reported := _worst(zone)) is not None:
                    worst[name] = max(worst.get(name, reported), reported)
        for name in at_limit:
            figures.zones[name].waited_at_limit += 1
        _add_targets(figures, worst)
        self._counted = counted


def _is_empty(zone: ZoneView) -> bool:
    return not zone.in_use and not zone.cached and zone.waiting_for is None and zone.latency is None


def _grow(found: ZoneFigures, before: tuple[int, ...] | None, now: tuple[int, ...]) -> None:
    if before is None:
        return
    for counter, was, is_now in zip(_COUNTERS, before, now, strict=True):
        # A lower count means that the engine has restarted and counts from zero.
        setattr(found, counter, getattr(found, counter) + (is_now - was if is_now >= was else is_now))


def _worst(zone: ZoneView) -> tuple[float, str] | None:
    """Returns the highest ratio of a latency to its target, and the reported reason; None without a measurement."""
    latency = zone.latency
    targets: Iterable[TargetReport | None] = () if latency is None else (latency.token_time, latency.first_token)
    reported = [
        (min(each.actual_seconds / each.target_seconds, _MOST), each.reason)
        for each in targets
        if each is not None and each.actual_seconds is not None
    ]
    return max(reported, default=None)


def _add_targets(figures: Figures, worst: Mapping[str, tuple[float, str]]) -> None:
    for name, (ratio, reason) in worst.items():
        found = figures.zones[name]
        found.reported += 1
        found.ratio += ratio
        if ratio > MET:
            found.missed[reason if reason in _REASONS else _OTHER_REASON] += 1
