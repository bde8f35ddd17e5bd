"""Declares the metrics of the tiers below an engine's blocks.

Each scrape has the few metrics of each tier, because alerts use them. Only detailed scrapes have the metrics of each
zone in each tier.
"""

from typing import Final, get_args

from tenantzone_runtime.metrics.family import of_tiers, of_tiers_by, of_zone_tiers, of_zone_tiers_by
from tenantzone_runtime.zones.tiers.tier_counts import Loss, QuestionOutcome, WriteRefusal

_ALERTED_REFUSALS: Final[tuple[WriteRefusal, ...]] = ("reserved", "room")
"""Reasons whose series always exist, even with the value 0, because alerts use their rates."""
_ALERTED_LOSSES: Final[tuple[Loss, ...]] = ("corrupt",)

_REFUSALS: Final = (
    "reserved: although the zone would still have been within its reservation, as what others hold of it is in "
    "transfer; room: for its limit, or what others are promised or transfer; transfers: as many of its chunks were "
    "being stored as may; closed: the tier stores nothing now, or has not what comes before it in the prompt."
)

TIERS: Final = (
    of_tiers(
        "gauge",
        "capacity_bytes",
        "What the tier can hold, in whole chunks; 0 of a shared tier.",
        lambda tier: tier.capacity_bytes,
    ),
    of_tiers("gauge", "held_bytes", "What it holds, of all zones.", lambda tier: tier.held_bytes),
    of_tiers("gauge", "chunk_bytes", "A chunk, which it moves at once.", lambda tier: tier.chunk_bytes),
    of_tiers(
        "gauge",
        "failing",
        "1 while the tier can't store or can't load; requests compute what it does not give. Else 0.",
        lambda tier: bool(tier.problem),
    ),
    of_tiers_by(
        "outcome",
        "questions_total",
        "Requests' questions to the KV-cache manager. late: not answered within 50 ms; failed: not answered; skipped: "
        "not asked, because others had failed. What was not answered was computed.",
        lambda tier: tier.questions,
        get_args(QuestionOutcome),
    ),
    of_tiers(
        "counter",
        "stored_bytes_total",
        "What was stored there, for whichever zone.",
        lambda tier: tier.totals.written * tier.chunk_bytes,
    ),
    of_tiers_by(
        "reason",
        "refused_chunks_total",
        f"Chunks of all zones that were not stored. {_REFUSALS}",
        lambda tier: tier.totals.refused_writes,
        get_args(WriteRefusal),
    ),
    of_tiers(
        "counter",
        "corrupt_chunks_total",
        "Chunks of all zones that were not what was stored: changed, cut off, swapped or another's. They were computed "
        "instead.",
        lambda tier: tier.totals.corrupt,
    ),
    of_zone_tiers("gauge", "held_bytes", "What the zone holds in the tier.", lambda tier: tier.held * tier.chunk_bytes),
    of_zone_tiers(
        "gauge", "reserved_bytes", "What the zone is guaranteed there.", lambda tier: tier.reserved * tier.chunk_bytes
    ),
    of_zone_tiers(
        "gauge", "limit_bytes", "What the zone may hold there at most.", lambda tier: tier.limit * tier.chunk_bytes
    ),
    of_zone_tiers(
        "counter",
        "loaded_bytes_total",
        "What was found there for the zone's requests and began to be loaded.",
        lambda tier: tier.counts.hits * tier.chunk_bytes,
    ),
    of_zone_tiers(
        "counter",
        "stored_bytes_total",
        "What the zone's requests have stored there.",
        lambda tier: tier.counts.written * tier.chunk_bytes,
    ),
    of_zone_tiers(
        "counter",
        "not_admitted_bytes_total",
        "What was not stored there because of the zone's terms of admission.",
        lambda tier: tier.counts.not_admitted * tier.chunk_bytes,
    ),
    of_zone_tiers(
        "counter",
        "byte_seconds_total",
        "Bytes held there, times seconds.",
        lambda tier: tier.chunk_seconds * tier.chunk_bytes,
    ),
    of_zone_tiers_by(
        "reason",
        "refused_chunks_total",
        f"Chunks that were not stored. {_REFUSALS}",
        lambda tier: tier.counts.refused_writes,
        always=_ALERTED_REFUSALS,
    ),
    of_zone_tiers_by(
        "reason",
        "evicted_chunks_total",
        "Chunks that the zone lost there, with the reasons of tenantzone_zone_evicted_blocks_total.",
        lambda tier: tier.evictions,
    ),
    of_zone_tiers_by(
        "reason",
        "lost_chunks_total",
        "Chunks that were computed instead. corrupt: not what was stored: changed, cut off, swapped or another's; "
        "vanished: not there any more; write, read: refused by the storage; late: not done when they had to be.",
        lambda tier: tier.counts.losses,
        always=_ALERTED_LOSSES,
    ),
)
