"""Proposes changes from a window's figures, most urgent first. Each rule changes one field in one direction."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.share import percentage
from tenantzone_operator.advice.adjustment import Field
from tenantzone_operator.advice.values import counts_blocks, duration, fraction, value_of, value_of_pool
from tenantzone_operator.advice.window import Figures
from tenantzone_operator.kube.advice_spec import Bounds
from tenantzone_operator.kube.resources import Pool, Zone

Reason = Literal["TargetMissed", "LimitTooLow", "KeptTooShort", "KeptInVain", "CacheTurnedOver", "EvictedEarly"]

_STEP: Final = 1.25
"""Factor by which one step raises or lowers a limit."""
_FACTOR: Final = 2.0
"""Factor by which one step changes a weight, a ttl or a watermark."""
_MUCH: Final = 0.1
"""Minimum fraction of the engines' blocks that must be affected to make a change worthwhile."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed change of one value."""

    zone: str
    """Name of the zone; empty if the field belongs to the pool."""
    field: Field
    current: str
    """Current value of the field; empty if the field is unset."""
    value: str
    reason: Reason
    message: str
    for_zone: str
    """Name of the zone that should benefit; empty for all zones together."""

    @property
    def key(self) -> tuple[str, Field]:
        return self.zone, self.field


def proposals(pool: Pool, zones: Mapping[str, Zone], figures: Figures, bounds: Bounds) -> Iterator[Proposal]:
    """Iterates over all changes that would help and that the bounds allow. Each change moves one value by one step.

    Args:
        pool: the pool with its current adjustments applied.
        zones: the pool's zones with their current adjustments applied, by name.
        figures: the figures of the last window.
        bounds: the allowed range of each field; fields without bounds are never changed.
    """
    configs = {name: zone.config for name, zone in zones.items() if zone.config is not None and name in figures.zones}
    found = _Rules(pool, configs, figures, bounds)
    yield from found.for_targets()
    yield from found.for_hits()


class _Rules:
    def __init__(self, pool: Pool, configs: Mapping[str, ZoneConfig], figures: Figures, bounds: Bounds) -> None:
        self._pool = pool
        self._configs = configs
        self._figures = figures
        self._bounds = bounds
        self._much = _MUCH * figures.capacity / max(1, figures.looks)
        """Minimum number of affected blocks that makes a change worthwhile."""

    def for_targets(self) -> Iterator[Proposal]:
        """Propose changes for zones that miss a latency target, depending on why requests wait."""
        for name in self._figures.missing:
            if name not in self._configs:
                continue
            seen = self._figures.zones[name]
            ((why, _),) = seen.missed.most_common(1)
            if why == "Blocks" and seen.waited_at_limit:
                message = f"{name} misses a latency target while its requests wait because of its limit"
                yield from self._raise_limit(name, "TargetMissed", message)
            elif why == "Blocks":
                yield from self._lower_largest(name)
            elif why in ("Neighbours", "Seats"):
                words = (
                    "other zones' requests share the steps of its requests"
                    if why == "Neighbours"
                    else "its requests wait for a seat"
                )
                yield from self._raise_weight(name, f"{name} misses a latency target, and {words}")

    def for_hits(self) -> Iterator[Proposal]:
        """Propose changes where cached blocks are evicted too early or kept without use."""
        is_short = sum(each.evicted_for_room for each in self._figures.zones.values()) >= self._much
        by_evictions = sorted(self._configs, key=lambda name: (-self._lost(name), name))
        for name in by_evictions:
            seen = self._figures.zones[name]
            if not is_short and seen.evicted_by_limit >= max(1.0, self._mean(seen.cached)):
                message = f"{name} replaced its whole cache at its limit, while no zone needed the other blocks"
                yield from self._raise_limit(name, "LimitTooLow", message)
            if not is_short and seen.evicted_by_ttl >= max(1.0, self._mean(seen.cached)):
                yield from self._longer_ttl(name)
        if is_short:
            for name in sorted(self._configs):
                yield from self._shorter_ttl(name)
        for name in by_evictions:
            yield from self._other_policy(name)
        yield from self._lower_watermark()

    def _lost(self, name: str) -> int:
        seen = self._figures.zones[name]
        return seen.evicted_by_limit + seen.evicted_for_room

    def _mean(self, summed: float) -> float:
        return summed / max(1, self._figures.looks)

    def _raise_limit(self, name: str, reason: Reason, message: str) -> Iterator[Proposal]:
        now, bound = self._limit(name), self._bounds.limit
        if now is not None and bound is not None and now < 100:
            value = min(int(max(now + 1, now * _STEP)), int(bound.most), 100)
            if value > now and value >= bound.least:
                yield self._of_zone(name, Field.LIMIT, f"{value}%", reason, message, for_zone=name)

    def _lower_largest(self, name: str) -> Iterator[Proposal]:
        """Lower the limit of the zone that most exceeds its reservation, among zones that meet their own targets."""
        zones, bound = self._figures.zones, self._bounds.limit
        others = [other for other in self._configs if other != name and not zones[other].misses]
        surplus = {other: self._mean(zones[other].held - zones[other].reserved) for other in others}
        largest = max(others, key=lambda other: (surplus[other], other), default=None)
        if bound is None or largest is None or surplus[largest] < self._much:
            return
        config = self._configs[largest]
        if counts_blocks(config):
            return
        held = 100 * zones[largest].held / max(1.0, self._figures.capacity)
        now = self._limit(largest)
        # Start from the blocks that the zone holds, because a limit above this number would have no effect.
        lower = int(min(held, 100.0 if now is None else now) / _STEP)
        floor = percentage(config.reserved) if isinstance(config.reserved, str) else 0
        value = max(lower, floor, int(bound.least), 1)
        if value < min(held, 100 if now is None else now) and value <= bound.most:
            message = (
                f"{name} misses a latency target because it lacks blocks, and {largest} exceeds its reservation most"
            )
            yield self._of_zone(largest, Field.LIMIT, f"{value}%", "TargetMissed", message, for_zone=name)

    def _limit(self, name: str) -> int | None:
        """Returns the zone's limit in percent of an engine's blocks; None if the limit is unset or not a percentage."""
        config = self._configs[name]
        return percentage(config.limit) if isinstance(config.limit, str) and not counts_blocks(config) else None

    def _raise_weight(self, name: str, message: str) -> Iterator[Proposal]:
        now, bound = self._configs[name].weight, self._bounds.weight
        if bound is not None:
            value = int(min(now * _FACTOR, bound.most))
            if value > now and value >= bound.least:
                yield self._of_zone(name, Field.WEIGHT, str(value), "TargetMissed", message, for_zone=name)

    def _longer_ttl(self, name: str) -> Iterator[Proposal]:
        now, bound = self._configs[name].retention.ttl_seconds, self._bounds.ttl
        if now is not None and bound is not None:
            value = min(now * _FACTOR, bound.most)
            if value > now and value >= bound.least:
                message = f"cached blocks of {name} expire because of its ttl, although no zone needs the blocks"
                yield self._of_zone(name, Field.TTL, duration(value), "KeptTooShort", message, for_zone=name)

    def _shorter_ttl(self, name: str) -> Iterator[Proposal]:
        """Shorten the ttl of a zone that keeps many cached blocks without hits, while other zones lack blocks."""
        seen, bound = self._figures.zones[name], self._bounds.ttl
        is_in_vain = seen.prefix_query_tokens > 0 and not seen.prefix_hit_tokens
        config = self._configs[name]
        if bound is None or not is_in_vain or self._mean(seen.cached) < self._much or config.retention.no_store:
            return
        now = config.retention.ttl_seconds
        value = max(bound.least, min(bound.most, bound.most if now is None else now / _FACTOR))
        if now is None or value < now:
            message = f"{name} had no hits in its cached blocks, and other zones need the blocks"
            yield self._of_zone(name, Field.TTL, duration(value), "KeptInVain", message, for_zone="")

    def _other_policy(self, name: str) -> Iterator[Proposal]:
        """Propose another eviction policy for a zone that replaced its whole cache in the window and has some hits."""
        seen = self._figures.zones[name]
        if self._lost(name) < max(1.0, self._mean(seen.cached), self._much) or not seen.prefix_hit_tokens:
            return
        now = self._configs[name].eviction_policy
        for policy in self._bounds.eviction_policies:
            if policy != now:
                message = f"{name} replaced its whole cache, and {policy} may keep more blocks that are used again"
                yield self._of_zone(name, Field.EVICTION_POLICY, policy, "CacheTurnedOver", message, for_zone=name)

    def _lower_watermark(self) -> Iterator[Proposal]:
        """Lower the watermark if the watermark evicts many blocks before any zone needs them."""
        config, bound = self._pool.config, self._bounds.watermarks
        evicted = sum(each.evicted_by_watermark for each in self._figures.zones.values())
        if config is None or bound is None or evicted < max(1.0, self._much):
            return
        now = config.watermarks.high
        value = max(bound.least, now / _FACTOR if now >= 0.01 else 0.0)
        current = value_of_pool(config)
        if value < now and value <= bound.most and fraction(value) != current:
            message = "the watermarks evict blocks before any zone needs them"
            yield Proposal("", Field.WATERMARK, current, fraction(value), "EvictedEarly", message, for_zone="")

    def _of_zone(self, name: str, field: Field, value: str, reason: Reason, message: str, *, for_zone: str) -> Proposal:
        return Proposal(name, field, value_of(self._configs[name], field), value, reason, message, for_zone)
