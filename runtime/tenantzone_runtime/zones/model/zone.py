"""One tenant's zone on one engine: its quota, blocks, timers and counters."""

from dataclasses import dataclass, field
from math import inf
from typing import Final

from tenantzone_contract.reports.words import WaitReason, ZoneState
from tenantzone_contract.zone_config.config import EvictionPolicy
from tenantzone_contract.zone_config.tiers import Offload
from tenantzone_contract.zone_config.zone_terms import Idle, LatencyTargets, Lending, QueueBounds, Retention
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES
from tenantzone_runtime.zones.eviction_policies.order import EvictionOrder, Links
from tenantzone_runtime.zones.model.ages import Ages
from tenantzone_runtime.zones.model.counters import Counters
from tenantzone_runtime.zones.model.fair_queue import Account
from tenantzone_runtime.zones.model.outcomes import TargetName, TargetOutcome
from tenantzone_runtime.zones.model.queue import Queue
from tenantzone_runtime.zones.model.quota import Quota
from tenantzone_runtime.zones.model.users import Users

Used = tuple[float, int, int, int, int, int, int, int, int]
"""Block-seconds, prompt tokens, cached prompt tokens, and generated tokens; then tokens by how they were processed:
computed for the first time, recomputed, rejected as drafts, loaded from a tier, and found in the prefix cache."""


@dataclass(slots=True)
class Purge:
    """One purge of a zone, and the numbers of blocks that it affected in this engine."""

    id: str
    evicted: int = 0
    """Cached blocks that were evicted."""
    withdrawn: int = 0
    """Number of blocks in use when the purge began. New requests can't find them, and they become free when released.
    """
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class SeatQuota:
    """The zone's bounds on concurrent requests, on this engine."""

    reserved: int | None = None
    """Number of reserved seats. If None, the zone gets seats in proportion to its reserved blocks."""
    limit: int | None = None
    """Maximum number of seats; None means no limit."""
    awaited: int = 0
    """Number of seats in the config's reservation if the engine has too few for it; else 0. ``reserved`` is 0 then."""


@dataclass(frozen=True, slots=True)
class ZoneSpec:
    """The spec of a zone as the config gives it, in blocks of this engine."""

    tenant: str
    name: str
    generation: int
    priority: int
    quota: Quota
    idle: Idle
    weight: int = 1
    lending: Lending = Lending()
    """The terms of loans. On this engine, ``quota.lendable`` replaces ``lending.lendable``."""
    eviction_policy: EvictionPolicy = "LRU"
    scrub: bool = False
    """Whether a block's memory is zeroed before another zone gets it."""
    queue: QueueBounds = QueueBounds()
    max_tokens: int | None = None
    """Maximum number of tokens of an answer; None means no limit."""
    retention: Retention = Retention()
    offload: Offload = "All"
    """Which parts of the zone's requests are stored in tiers below the engine's blocks."""
    seats: SeatQuota = SeatQuota()
    latency: LatencyTargets = LatencyTargets()
    tells_users_apart: bool = False
    """Whether the zone's requests name their users, so that seats and tokens are shared fairly among the users."""
    purge: str = ""
    """Id of the last purge that was requested; empty if none was."""
    auto_registered: bool = False
    """Whether the zone was registered for an undeclared tenant; see ``registration``."""
    level: str = ""
    """Level of unknown tenants to which the tenant belongs; empty if it belongs to none."""
    awaited: int = 0
    """Number of blocks in the zone's reservation if they don't fit now, so that the quota reserves 0; else 0."""


@dataclass(slots=True, eq=False)
class Zone:
    """The mutable state of one zone. Only the ledger changes its blocks. Only ``states`` sets ``state`` and ``quiet``.

    Two zones are equal only if they are the same object, because a block's owner refers to the object.
    """

    spec: ZoneSpec
    born: float
    last_active: float
    cached: EvictionOrder
    """Ids of the cached blocks, in the order of eviction."""
    in_use: int = 0
    requests: int = 0
    """Number of waiting and running requests."""
    state: ZoneState = "Idle"
    quiet: bool = False
    cached_when_quiet: int = 0
    """Number of blocks that were cached when the zone last became quiet."""
    overdue: int = 0
    """Number of borrowed blocks past their due time. While it is above 0, no request of the zone is admitted above the
    zone's reservation."""
    leaving: bool = False
    """Whether the config no longer has the zone. Its requests finish, and the blocks that they release become free.
    """
    wait_reason: WaitReason | None = None
    """Why the next request could not be admitted in the last step; only ``wait_accounting`` changes it."""
    denied: int = 0
    """Number of blocks that the next request was denied; only ``wait_accounting`` changes it."""
    backoff_ticket: int = 0
    """Ticket of the zone while it backs off because its next request was denied, else 0; see ``schedule.backoff``."""
    denied_with: tuple[int, int, int] = (0, 0, 0)
    """The zone's prospects when it last backed off."""
    counters: Counters = field(default_factory=Counters)
    account: Account = field(default_factory=Account)
    """The zone's account in the fair queue."""
    queue: Queue = field(default_factory=Queue)
    users: Users | None = None
    """The zone's users, among whom service is shared fairly; None if the zone does not distinguish users."""

    # The zone's part in the ledger's sums, and its place in the ledger's orders.
    number: int = 0
    locked: int = 0
    evictable: int = 0
    evictable_by_all: int = 0
    reclaimable: int = 0
    withheld: int = 0
    surplus: int = 0
    active_weight: int = 0
    accrued_until: float = 0.0
    """Time at which block-seconds were last updated."""
    lent: int = 0
    """Number of blocks of the zone's reservation that are lent. Only the loan book changes it."""
    borrowed: int = 0
    """Number of blocks of the zone's surplus that are borrowed. Only the loan book changes it."""
    usage_reported: Used = (0.0, 0, 0, 0, 0, 0, 0, 0, 0)
    """The usage that was last written to the journal."""
    ages: Ages | None = None
    """The ages of the cached blocks; None if the zone has no TTL. Only the ledger changes them."""
    outcomes: dict[TargetName, TargetOutcome] = field(default_factory=dict)
    """The outcomes of the zone's latency targets."""
    purge: Purge | None = None
    """The last purge that began; only ``purging`` and the engine change it."""
    purges: int = 0
    """Number of purges that have begun. A request caches nothing if a purge began after its admission."""

    @property
    def held(self) -> int:
        return self.in_use + self.cached.size

    @property
    def name_in_journal(self) -> str | None:
        """The zone's tenant; None for the zone of requests that arrived before any zone was declared."""
        return self.spec.tenant or None

    @property
    def prospects(self) -> tuple[int, int, int]:
        """Three numbers. If one of them increases, the zone's next request is more likely to get blocks.

        They are the negative number of blocks in use, and the zone's own shares of the spare and reclaimable blocks.
        """
        own = len(self.cached) + self.locked
        return -self.in_use, own - self.evictable, own - self.reclaimable

    @property
    def has_better_prospects(self) -> bool:
        """Whether one of the zone's prospects has improved since its next request was denied."""
        return any(now > then for now, then in zip(self.prospects, self.denied_with, strict=True))

    @property
    def borrows(self) -> bool:
        """Whether the zone's requests use more than its reservation."""
        return self.in_use > self.spec.quota.reserved

    def is_entitled_to(self, count: int) -> bool:
        """Whether the zone could use ``count`` more blocks and still be within its reservation."""
        return self.in_use + count <= self.spec.quota.reserved

    @property
    def short(self) -> int:
        """Number of reserved blocks that the zone lacks while its next request waits for them.

        It is 0 if the request would exceed the reservation, because it would then borrow, and loans are not promised.
        """
        quota = self.spec.quota
        if self.wait_reason not in ("reserved", "in_use", "seats") or self.in_use + self.denied > quota.reserved:
            return 0
        return max(0, quota.reserved - self.held)

    def follow(self, spec: ZoneSpec) -> None:
        """Adopt a new spec; the zone's blocks stay, in their order."""
        if spec.eviction_policy != self.spec.eviction_policy:
            self.cached = EVICTION_POLICIES[spec.eviction_policy](self.cached.links, self.cached.clear())
        if spec.tells_users_apart != (self.users is not None):
            self.users = Users() if spec.tells_users_apart else None
        self.spec = spec
        self.account.weight = spec.weight


EARLY_TENANT: Final = ""
"""The tenant of the zone for requests that arrived before any zone was declared. No tenant has this name."""


def new_zone(spec: ZoneSpec, now: float, links: Links) -> Zone:
    """Create a zone that holds no blocks yet, at the time ``now``, for an engine with these links.

    The zone begins quiet, because no request has used its reservation yet.
    """
    return Zone(
        spec=spec,
        born=now,
        last_active=-inf,
        quiet=True,
        accrued_until=now,
        cached=EVICTION_POLICIES[spec.eviction_policy](links),
        account=Account(weight=spec.weight),
        users=Users() if spec.tells_users_apart else None,
    )
