"""The words of reports: states of zones, and reasons for evictions, waits and missed latency targets."""

from typing import Literal

ZoneState = Literal["Active", "Idle", "Evicted"]
"""State of a zone on an engine.

Active: a request is waiting or running. Idle: the zone has no requests. Evicted: the zone is idle, and all its blocks
are evicted, but the zone still exists.
"""

EvictionReason = Literal[
    "quiet",
    "reclaim",
    "own",
    "relief",
    "limit",
    "watermark",
    "due",
    "idle",
    "ttl",
    "no_store",
    "purge",
    "removed",
    "reset",
]
"""Reason why a cached block was evicted.

The owner is the zone that lost the block. Its surplus consists of the blocks that it held above its reservation.

quiet: another zone needed the block, and the owner was past its idle window. reclaim: a zone within its reservation
needed the block, which was surplus of its owner. own: the owner itself needed the block. relief: surplus of an active
zone was evicted, because another zone's request was denied blocks or was growing. limit: the owner would have exceeded
its limit. watermark: the engine ran low on free blocks. due: the owner had borrowed the block, and the loan was due.
idle: the owner had no requests for the configured time. ttl: the block was unused for the owner's TTL. no_store: the
owner no longer caches blocks. purge: the owner was purged. removed: the owner was removed from the config. reset: the
prefix cache was reset.
"""

LatencyReason = Literal[
    "Met", "NoTraffic", "Warming", "OwnLoad", "OwnPrompts", "ModelTooSlow", "Neighbours", "Blocks", "Seats"
]
"""State of a zone's latency target, or the reason why the target is missed.

Met: the latency was at most 1.15 times the target. NoTraffic: no request was served in the last minute. All other
words are reasons why the target is missed. Warming: too few steps were measured to predict step times. OwnLoad: the
zone's own generating requests make steps longer than the target. OwnPrompts: the zone's own prompts make steps longer
than the target allows. ModelTooSlow: a single request takes longer than the target. Neighbours: requests of other zones
were computed in the same steps. Blocks, Seats: requests waited for blocks or seats before their first token.
"""

WaitReason = Literal[
    "limit", "reserved", "in_use", "seats", "seat_limit", "tokens", "adapter", "encoder", "grammar", "load"
]
"""Reason why a zone's next request waits.

limit: the zone has reached its limit of blocks. reserved: blocks are free or cached, but reserved for other zones.
in_use: other requests use the blocks. seats: the engine runs its maximum number of requests. seat_limit: the zone runs
its maximum number of requests. tokens: the zone's share of the steps is used up, or another zone's latency target needs
the tokens. adapter: requests for other LoRA adapters use all adapter slots, or another zone gets the next slot.
encoder: other requests' media fill the encoder cache, or the cache's free room is kept for another zone. grammar:
the request's grammar is not compiled yet. load: the engine looks up the prompt's blocks in a tier, or copies blocks
from a tier. For grammar and load, all waiting requests of the zone wait.
"""

Lag = Literal["config", "keys", "salt_key", "silent"]
"""Difference between an API server process and its engine core that has lasted for at least 30 seconds.

config: the process enforces another config. keys: the process has other API keys than the engine core reads from the
same folder. salt_key: the process uses another salt key. silent: the process has not reported its state.
"""
