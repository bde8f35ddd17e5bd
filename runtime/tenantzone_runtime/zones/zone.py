"""One tenant's zone on one engine: its promise, its blocks, its clock, its counters."""

from collections import OrderedDict
from dataclasses import dataclass, field

from tenantzone_contract.report import EvictionReason, ZoneState
from tenantzone_runtime.zones.quota import Quota


@dataclass(frozen=True, slots=True)
class IdleTimes:
    """Seconds without a request until the zone lends (``after``) and until its blocks go (``evict_after``)."""

    after: float
    evict_after: float | None = None


@dataclass(frozen=True, slots=True)
class ZoneSpec:
    """What the config says of a zone, in blocks of this engine."""

    tenant: str
    name: str
    generation: int
    priority: int
    quota: Quota
    idle: IdleTimes


@dataclass(slots=True)
class Counters:
    """What has happened in a zone since the engine started; never decreases."""

    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    evicted: dict[EvictionReason, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Zone:
    """Mutable state of one zone. Only the ledger changes the blocks; only ``states`` changes state and quiet.

    Two zones are the same only if they are the same object: the identity is what a block's owner refers to.
    """

    spec: ZoneSpec
    last_active: float
    in_use: int = 0
    cached: OrderedDict[int, None] = field(default_factory=OrderedDict)
    """Ids of blocks that no request uses, least recently used first."""
    requests: int = 0
    """Waiting or running."""
    state: ZoneState = "Idle"
    quiet: bool = False
    grace: int = 0
    """Blocks that a request from before the limit was lowered may still need, if that is more than the limit."""
    leaving: bool = False
    """Gone from the config: its requests finish, and each block that they release is free at once."""
    counters: Counters = field(default_factory=Counters)

    # The zone's part in the ledger's sums.
    locked: int = 0
    evictable: int = 0
    recallable: int = 0

    @property
    def held(self) -> int:
        return self.in_use + len(self.cached)
