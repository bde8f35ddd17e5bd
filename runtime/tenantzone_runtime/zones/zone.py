"""One tenant's zone on one engine: its promise, its blocks, its times, its counters."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Final

from tenantzone_contract.config import EvictionPolicy
from tenantzone_contract.report import WaitReason, ZoneState
from tenantzone_contract.tiers import Offload
from tenantzone_contract.zone_terms import Borrowers
from tenantzone_runtime.zones.ages import Ages
from tenantzone_runtime.zones.counters import Counters
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES
from tenantzone_runtime.zones.eviction_policies.order import EvictionOrder, Links
from tenantzone_runtime.zones.fair_queue import Account
from tenantzone_runtime.zones.latency_targets import NO_TARGETS, LatencyTargets
from tenantzone_runtime.zones.outcomes import TargetName, TargetOutcome
from tenantzone_runtime.zones.queue import UNBOUNDED, Queue, QueueBounds
from tenantzone_runtime.zones.quota import Quota
from tenantzone_runtime.zones.users import Users


@dataclass(frozen=True, slots=True)
class ReleaseSteps:
    """The steps in which a quiet zone's cached blocks are evicted."""

    share: int
    """The percentage, of what it kept cached when it became quiet, that is evicted in each step."""
    every_seconds: float
    """Seconds from one step to the next."""


Used = tuple[float, int, int, int, int, int, int, int, int]
"""Block-seconds, prompt tokens, cached ones among them, and generated ones; then tokens by how they were processed:
computed first, recomputed, rejected drafts, loaded, hit."""


@dataclass(frozen=True, slots=True)
class IdleTimes:
    """Seconds without requests until the zone lends, until its blocks go, and until it is forgotten; None: never."""

    after_seconds: float
    evict_after_seconds: float | None = None
    forget_after_seconds: float | None = None
    release: ReleaseSteps | None = None

    @property
    def releases(self) -> Iterator[float]:
        """Yields the seconds without a request until each share of the blocks is evicted; the last leaves none."""
        if self.release is not None:
            for step in range(1, -(-100 // self.release.share) + 1):
                yield self.after_seconds + step * self.release.every_seconds


SHORTEST_LOAN_SECONDS: Final = 0.1
"""Longer than most steps of an engine. What a request computes on a loan of one step is lost when the loan ends."""


@dataclass(frozen=True, slots=True)
class LoanTerms:
    """The terms on which a zone lends what its quota calls lendable."""

    borrowers: Borrowers = "SameOrHigherPriority"
    """Which zones may borrow, by their priority relative to this zone's."""
    max_loan_seconds: float | None = None
    """Seconds from the start of a loan until it is due; None: when the lender asks for it."""
    grace_seconds: float = 30.0
    """Seconds for which a due loan may stay in use."""

    @property
    def are_too_short(self) -> bool:
        """Whether a loan would end before a request can use it, so that none is granted."""
        if self.max_loan_seconds is None:
            return False
        return self.max_loan_seconds + self.grace_seconds < SHORTEST_LOAN_SECONDS


@dataclass(frozen=True, slots=True)
class Retention:
    """How long the results of a zone's requests are kept for others that begin alike."""

    ttl_seconds: float | None = None
    """Seconds without use after which a cached block is evicted; None: it stays as long as there is room."""
    no_store: bool = False
    """Whether nothing is kept at all."""


@dataclass(slots=True)
class Purge:
    """One purge of a zone, with its effect in this engine, in blocks."""

    id: str
    evicted: int = 0
    """Cached blocks that were evicted."""
    withdrawn: int = 0
    """Blocks in use when it began: they are not found any more, and become free once they are released."""
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class SeatQuota:
    """The zone's bounds on concurrent requests, on this engine."""

    reserved: int | None = None
    """Reserved seats; None: the share that comes with its blocks."""
    limit: int | None = None
    """The most seats; None: as many as are free."""
    awaited: int = 0
    """Seats that it should reserve but the engine lacks: none is reserved then."""


@dataclass(frozen=True, slots=True)
class ZoneSpec:
    """The spec of a zone as the config gives it, in blocks of this engine."""

    tenant: str
    name: str
    generation: int
    priority: int
    quota: Quota
    idle: IdleTimes
    weight: int = 1
    lending: LoanTerms = LoanTerms()
    eviction_policy: EvictionPolicy = "LRU"
    scrub: bool = False
    """Whether a block's memory is zeroed before another zone gets it."""
    queue: QueueBounds = UNBOUNDED
    max_tokens: int | None = None
    """The most tokens of an answer; None: as many as fit."""
    retention: Retention = Retention()
    offload: Offload = "All"
    """Which parts of its requests are stored in tiers below the engine's blocks."""
    seats: SeatQuota = SeatQuota()
    latency: LatencyTargets = NO_TARGETS
    tells_users_apart: bool = False
    """Whether its requests name users, which are then served fairly."""
    purge: str = ""
    """The id of the purge that should have been carried out; empty: none."""
    auto_registered: bool = False
    """Whether it is for an undeclared tenant; see ``registration``."""
    level: str = ""
    """The level of unknown tenants that its tenant belongs to; empty: none."""
    awaited: int = 0
    """Blocks that it should reserve and that do not fit now: its quota has no reservation then."""


@dataclass(slots=True, eq=False)
class Zone:
    """The mutable state of one zone; only the ledger changes its blocks, and only ``states`` its state and quietness.

    Two zones are equal only if they are the same object: a block's owner refers to the object.
    """

    spec: ZoneSpec
    born: float
    last_active: float
    cached: EvictionOrder
    """Ids of blocks that no request uses, the next one to evict first."""
    in_use: int = 0
    requests: int = 0
    """The number of requests that wait or run."""
    state: ZoneState = "Idle"
    quiet: bool = False
    cached_when_quiet: int = 0
    """Blocks that it kept cached when it last became quiet."""
    overdue: int = 0
    """Blocks on loans past their due time: while there are any, no request of the zone is admitted above its
    reservation."""
    leaving: bool = False
    """Whether it is gone from the config: its requests finish, and each block that they release is free at once."""
    wait_reason: WaitReason | None = None
    """Why its next request could not be admitted in the last step; only ``wait_accounting`` changes it."""
    denied: int = 0
    """Blocks that the request was denied; only ``wait_accounting`` changes it."""
    backoff_ticket: int = 0
    """Not 0 while its denied next request is not considered before something changes: ``admission`` decides when."""
    denied_with: tuple[int, int, int] = (0, 0, 0)
    """Its prospects when it backed off."""
    counters: Counters = field(default_factory=Counters)
    account: Account = field(default_factory=Account)
    """Its place in the fair queue."""
    queue: Queue = field(default_factory=Queue)
    users: Users | None = None
    """Its users, among whom it is fair; None: it does not distinguish them."""

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
    """When block-seconds were last updated."""
    lent: int = 0
    """Blocks of its reservation on loans. Only the loan book changes it."""
    borrowed: int = 0
    """Blocks of its surplus on loans. Only the loan book changes it."""
    usage_reported: Used = (0.0, 0, 0, 0, 0, 0, 0, 0, 0)
    """The usage that the journal has."""
    ages: Ages | None = None
    """The ages of its cached blocks; None: it has no ttl. Only the ledger changes them."""
    outcomes: dict[TargetName, TargetOutcome] = field(default_factory=dict)
    """The outcomes of its latency targets."""
    purge: Purge | None = None
    """The last purge that began; only ``purging`` and the engine change it."""
    purges: int = 0
    """The number of purges that began: a request caches nothing if one began after its admission."""

    @property
    def held(self) -> int:
        return self.in_use + self.cached.size

    @property
    def name_in_journal(self) -> str | None:
        """The zone's tenant; None for the zone of requests that arrived before any zone was declared."""
        return self.spec.tenant or None

    @property
    def prospects(self) -> tuple[int, int, int]:
        """The zone's own properties that decide whether its next request gets its blocks, whatever others leave it.

        These are the blocks that it does not use, and its own part of spare blocks and
        of surplus to reclaim. More only helps.
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
        """The blocks of its reservation that the zone lacks while its next request, which is within it, waits.

        A request for more than the reservation borrows all of it, and was promised nothing.
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
    """Make a zone that holds nothing yet, created at ``now``, for an engine with these links.

    It is quiet: its reservation was not requested yet.
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
