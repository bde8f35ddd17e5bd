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

quiet: another zone needed the block, and the owner was past its idle window. reclaim: a zone within its reservation
needed the block, which was surplus of its owner. own: the owner itself needed the block. relief: surplus of an active
zone, for another zone's request that was denied blocks or is growing. limit: the zone would have exceeded its limit.
watermark: the engine ran low on free blocks. due: the block was on a loan that had expired. idle: the zone had no
requests for the configured time. ttl: the block was unused for the zone's TTL. no_store: the zone no longer caches
blocks. purge: the zone was purged. removed: the zone was removed from the config. reset: the prefix cache was reset.
"""

LatencyReason = Literal[
    "Met", "NoTraffic", "Warming", "OwnLoad", "OwnPrompts", "ModelTooSlow", "Neighbours", "Blocks", "Seats"
]
"""State of a zone's latency target, or the reason why the target is missed.

Met: the time was at most 1.15 times the target. NoTraffic: no request was served in the last minute. With all other
reasons, the target is missed. Warming: too few steps were measured to predict step times. OwnLoad: the zone's own
generating requests take longer than the target. OwnPrompts: the zone's own prompts make steps longer than the target
allows. ModelTooSlow: a single request takes longer than the target. Neighbours: requests of other zones were computed
in the same steps. Blocks, Seats: requests waited for blocks or seats before their first token.
"""

WaitReason = Literal[
    "limit", "reserved", "in_use", "seats", "seat_limit", "tokens", "adapter", "encoder", "grammar", "load"
]
"""Reason why a zone's next request waits.

limit: the zone has reached its limit of blocks. reserved: blocks are free or cached, but reserved for other zones.
in_use: other requests use the blocks. seats: the engine runs its maximum number of requests. seat_limit: the zone runs
its maximum number of requests. tokens: the zone's share of the steps is used up, or another zone's latency target needs
the tokens. adapter: requests for other LoRA adapters use all adapter slots, or another zone gets the next slot.
encoder: encodings of other requests' media fill the encoder cache, or its free room is kept for another zone. grammar:
the request's grammar is not compiled yet. load: the engine looks up the prompt's blocks in a tier, or copies blocks
from a tier. For grammar and load, all waiting requests of the zone wait.
"""

Lag = Literal["config", "keys", "salt_key", "silent"]
"""Difference between an API server process and its engine core for 30 seconds or longer.

config: the process enforces another config. keys: the process has other API keys than the engine core reads from the
same folder. salt_key: the process uses another salt key. silent: the process has not reported its state.
"""
