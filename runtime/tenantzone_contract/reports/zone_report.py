"""The report on one zone: its blocks, requests and tokens, its latency targets, and its tiers."""

from typing import Annotated

from msgspec import Meta, field

from tenantzone_contract.reports.parts import (
    MAX_SECONDS,
    MAX_TIERS,
    Blocks,
    ByteTotal,
    Count,
    Integral,
    Name,
    Part,
    Seconds,
    TierText,
)


class PurgeReport(Part, frozen=True):
    """The last purge of a zone on an engine. Amounts are in KV-cache blocks."""

    id: Name
    evicted: Count = 0
    """Number of cached blocks that were evicted."""
    withdrawn: Count = 0
    """Number of blocks in use at the purge. They stay until their requests release them, but can't be hit any more."""


class TargetReport(Part, frozen=True):
    """One latency target of a zone, and the actual latency of its requests."""

    target_seconds: Annotated[float, Meta(gt=0, le=MAX_SECONDS)]
    actual_seconds: Seconds | None = None
    """99th percentile over the last minute, or None if no request was served."""
    met: bool | None = None
    """Whether the latency was at most 1.15 times the target, or None if no request was served."""
    reason: Name = "NoTraffic"
    """A :data:`LatencyReason`. A newer engine may report other reasons."""


class LatencyReport(Part, frozen=True):
    """The latency targets of a zone."""

    token_time: TargetReport | None = None
    first_token: TargetReport | None = None


class TierEffectReport(Part, frozen=True):
    """A zone's use of a tier in the last window, by the rule of :mod:`~tenantzone_contract.reports.tier_effect`."""

    offered_bytes: Count
    """Number of bytes that were stored, or would have been stored without the zone's admission terms."""
    loaded_bytes: Count
    ineffective: bool = False
    """Whether the zone loads too few of the bytes that it offers to the tier."""


class ZoneTierReport(Part, frozen=True):
    """One zone in one tier of an engine. Counters count since the zone was added. A chunk is the unit of transfer."""

    tier: TierText
    """An :data:`~tenantzone_contract.zone_config.tiers.AnyTierName`. A newer engine may report other tiers."""
    reserved_bytes: Count
    limit_bytes: Count
    held_bytes: Count
    awaited_bytes: Count = 0
    """Number of bytes that the TenantZone reserves but that do not fit. If above 0, ``reserved_bytes`` is 0."""
    hits: Count = 0
    """Number of chunks that were found and whose load began."""
    evictions: Count = 0
    """Number of evicted chunks, for any reason."""
    writes_refused: Count = 0
    """Number of chunks that were not stored."""
    writes_refused_within_reservation: Count = 0
    """Number of chunks that were not stored although they were within the zone's reservation."""
    stored_bytes: ByteTotal = 0
    """Number of bytes that were stored."""
    loaded_bytes: ByteTotal = 0
    """Number of bytes that were found and whose load began."""
    not_admitted_bytes: ByteTotal = 0
    """Number of bytes that were not stored because of the zone's admission terms."""
    effect: TierEffectReport | None = None
    """Last evaluation of the tier's effect, or None if there was none."""
    corrupt: Count = 0
    """Number of chunks that were not used, because they were changed, truncated, swapped or of another zone."""
    byte_seconds: Integral = 0.0
    """Integral of held bytes over time, in byte-seconds."""


class ZoneReport(Part, frozen=True):
    """One zone on one engine. Amounts are in KV-cache blocks unless the name has another unit."""

    name: Name
    tenant: Name
    generation: Count
    """Generation of the TenantZone that is enforced now."""
    state: Name
    """A :data:`ZoneState`. A newer engine may report other states."""
    reserved: Blocks
    limit: Blocks
    in_use: Blocks
    """Number of blocks that requests use."""
    cached: Blocks
    """Number of cached blocks that no request uses."""
    waiting_requests: Count = 0
    running_requests: Count = 0
    prefix_query_tokens: Count = 0
    prefix_hit_tokens: Count = 0
    prompt_tokens: Count = 0
    generation_tokens: Count = 0
    computed_tokens: Count = 0
    """Number of prompt tokens and generated tokens that were computed. A recomputed token does not count again."""
    computed_first_tokens: Count = 0
    """Number of tokens computed for the first time, without rejected drafts."""
    recomputed_tokens: Count = 0
    """Number of tokens computed again after preemptions."""
    withheld_tokens: Count = 0
    """Number of step tokens that the zone's requests could have used, but that were kept for other zones."""
    evictions: dict[Name, Count] = field(default_factory=dict)
    """Evicted blocks by :data:`EvictionReason`. A newer engine may report other reasons."""
    preemptions: Count = 0
    violations: Count = 0
    """Number of requests that failed, because a defect would have made them use another zone's block."""
    waits_for: Name | None = None
    """A :data:`WaitReason`, the reason why the zone's next request was not admitted in the last step.

    None if the request was admitted, or if no request waits. A newer engine may report other reasons.
    """
    auto_registered: bool = False
    """Whether the zone was registered for a tenant without a TenantZone. If so, ``generation`` is 0."""
    level: Name = ""
    """Name of the level in ``unknownTenants.levels`` that the tenant matches; empty if the tenant matches none."""
    awaited_reservation: Blocks = 0
    """Number of blocks that the TenantZone or level reserves but that do not fit. If above 0, ``reserved`` is 0."""
    reserved_seats: Count = 0
    """Number of requests that can run at once regardless of other zones."""
    latency: LatencyReport | None = None
    """State of the zone's latency targets. None if the zone has no targets, or if nothing was measured yet."""
    awaited_seats: Count = 0
    """Number of seats that the TenantZone reserves explicitly but that the engine does not have."""
    lent: Blocks = 0
    """Number of blocks of the zone's reservation that other zones use now."""
    borrowed: Blocks = 0
    """Number of blocks of other zones' reservations that the zone holds now."""
    block_seconds: Integral = 0.0
    """Integral of held blocks over time since the engine started, in block-seconds."""
    purge: PurgeReport | None = None
    """Last purge, or None if there was none."""
    scrubbed_blocks: Count = 0
    """Number of the zone's former blocks that were zeroed for another tenant since the engine started."""
    unscrubbed_blocks: Blocks = 0
    """Number of free blocks that contain data of the zone, and will be zeroed before another tenant gets them."""
    tiers: Annotated[tuple[ZoneTierReport, ...], Meta(max_length=MAX_TIERS)] = ()
    """Zone's report for each tier of the engine."""

    @property
    def held(self) -> int:
        return self.in_use + self.cached

    @property
    def blocks_evicted(self) -> int:
        """Number of evicted blocks, for any reason."""
        return sum(self.evictions.values())
