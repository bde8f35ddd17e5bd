"""Events of the audit journal: which zones were granted, lent, evicted, preempted and refused what, and why.

The core records them in the :mod:`~tenantzone_runtime.zones.trail` as they happen. Zones are named by their tenant.
Events contain no prompts, tokens or hashes of them.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tenantzone_contract.report import EvictionReason
from tenantzone_contract.tiers import AnyTierName

Change = Literal["declared", "registered", "changed", "active", "idle", "evicted", "leaving", "removed", "forgotten"]
"""declared, changed, removed: by the config; a zone that is removed while its requests run is leaving until they end.
registered, forgotten: for a tenant without a TenantZone. active, idle, evicted: the zone's current state.
"""

PreemptionReason = Literal["reclaim", "seat", "adapter", "encoder", "due", "own", "reset", "violation"]
"""reclaim: for a zone that is entitled to the blocks. seat: for one that is entitled to the seat. adapter: its adapter
gave up its slot for another one. encoder: for a zone that comes before it and waits for room in the encoder. due: a
loan and its grace are over. own: for the zone itself. reset: the prefix cache was reset. violation: it was found with
a block of another zone.
"""

RefusalReason = Literal["unbound", "unknown_tenant", "too_long", "unsupported", "changed_adapter", "queue_full"]
"""unbound: no valid seal of the frontend. unknown_tenant: no zone. too_long: it could never fit the zone's limit.
unsupported: a kind of request that zones do not support. changed_adapter: its LoRA adapter's files have changed since
it was loaded. queue_full: the zone's queue is full.
"""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The event that a zone came, changed, or left."""

    kind: ClassVar = "lifecycle"
    zone: str
    change: Change


@dataclass(frozen=True, slots=True)
class Balance:
    """The blocks that a zone holds, and those that it was granted and released since the last collection.

    It holds its blocks of the last balance (a new zone: none), plus ``granted``, less ``released``, less the blocks
    evicted from it in the same collection. There is no balance if none of its blocks has moved.
    """

    kind: ClassVar = "balance"
    zone: str
    granted: int
    """Free blocks that the zone has taken."""
    above_reservation: int
    """The blocks among these that it holds above its reservation."""
    released: int
    """Blocks that its requests released and that it did not keep cached."""
    held: int
    """Blocks held now, in use and cached."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """Cached blocks that a zone lost since the last collection, for one reason, to one beneficiary."""

    kind: ClassVar = "evicted"
    zone: str
    blocks: int
    reason: EvictionReason
    beneficiary: str | None
    """The zone that needed the blocks; None: no zone did."""


@dataclass(frozen=True, slots=True)
class Purged:
    """The event that a purge was carried out: the zone's earlier results are not found any more."""

    kind: ClassVar = "purged"
    zone: str
    id: str
    """The id as given in the request for the purge."""
    evicted: int
    """Cached blocks that were evicted; they are among those of ``Evicted`` with the reason ``purge``."""
    withdrawn: int
    """Blocks in use by requests: they become free, and not cached, once they are released."""


@dataclass(frozen=True, slots=True)
class Preempted:
    """The event that a running request of a zone was preempted."""

    kind: ClassVar = "preempted"
    zone: str | None
    """The zone; None: a request from before any zone was declared."""
    requests: int
    reason: PreemptionReason
    beneficiary: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The event that requests were refused."""

    kind: ClassVar = "refused"
    zone: str | None
    """The zone; None if the request has no trusted tenant."""
    requests: int
    reason: RefusalReason


@dataclass(frozen=True, slots=True)
class Violation:
    """The event that a request was about to use another zone's block; it was failed, and never served."""

    kind: ClassVar = "violation"
    zone: str | None
    block_id: int
    owner: str | None
    """The zone that the block belongs to; None: no zone."""


@dataclass(frozen=True, slots=True)
class Lent:
    """Blocks that a borrower was lent since the last collection."""

    kind: ClassVar = "lent"
    lender: str
    borrower: str
    blocks: int
    due_in_seconds: float | None
    """Seconds from when the last of them were lent. None: they are due when the lender asks for them."""


@dataclass(frozen=True, slots=True)
class Repaid:
    """Blocks that a borrower returned since the last collection: loans, or parts of them, that are over."""

    kind: ClassVar = "repaid"
    lender: str
    borrower: str
    blocks: int
    after_seconds: float
    """How long the loan had lasted when the last of them were returned."""
    overdue: bool


@dataclass(frozen=True, slots=True)
class ConfigApplied:
    """The event that a config has taken effect."""

    kind: ClassVar = "config_applied"
    generation: int
    hash: str
    zones: int


@dataclass(frozen=True, slots=True)
class ConfigRefused:
    """The event that a config was refused; the previous one stays active."""

    kind: ClassVar = "config_refused"
    generation: int | None
    error: str


@dataclass(frozen=True, slots=True)
class Usage:
    """A zone's usage since it was created; numbers only grow while ``counting_since`` stays the same."""

    kind: ClassVar = "usage"
    zone: str
    counting_since: float
    """When the zone was created, on the core's clock; the journal writes Unix time."""
    block_seconds: float
    """Blocks held, in use or cached, times seconds."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens found in the zone's cache."""
    generation_tokens: int
    computed_first_tokens: int
    """``zones.processed_tokens`` defines this and the next four."""
    recomputed_tokens: int
    rejected_draft_tokens: int
    loaded_tokens: int
    hit_tokens: int


@dataclass(frozen=True, slots=True)
class LoanUsage:
    """Block-seconds that a borrower has had from a lender; they only grow while ``counting_since`` stays the same."""

    kind: ClassVar = "loan_usage"
    lender: str
    borrower: str
    counting_since: float
    """When the loan began; or an earlier one of the same two zones whose total was not reported yet."""
    block_seconds: float


@dataclass(frozen=True, slots=True)
class TierUsage:
    """A zone's usage of a tier since it was created there; it only grows while ``counting_since`` stays the same."""

    kind: ClassVar = "tier_usage"
    zone: str
    tier: AnyTierName
    counting_since: float
    """When the zone was created, on the core's clock; the journal writes Unix time."""
    byte_seconds: float
    """Bytes held times seconds."""


@dataclass(frozen=True, slots=True)
class TierPurged:
    """The event that a purge was carried out in a tier: what the zone stored there is not found any more."""

    kind: ClassVar = "tier_purged"
    zone: str
    tier: AnyTierName
    id: str
    """The id as given in the request for the purge."""
    evicted: int
    """Chunks that were evicted."""
    withdrawn: int
    """Chunks that were in transfer: they are dropped when that ends."""


@dataclass(frozen=True, slots=True)
class TierReceipt:
    """The event that all files of a zone were removed from a tier's storage."""

    kind: ClassVar = "tier_receipt"
    zone: str
    tier: AnyTierName
    id: str | None
    """The id of the purge; None: the zone was removed."""
    chunks: int
    """Chunks that could no longer be found from then on."""
    files: int
    """Files that were removed since."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Records that are missing from the journal, because they came faster than they could be collected or written."""

    kind: ClassVar = "lost"
    records: int


Event = (
    Lifecycle
    | Balance
    | Evicted
    | Purged
    | Preempted
    | Refused
    | Violation
    | Lent
    | Repaid
    | ConfigApplied
    | ConfigRefused
    | Usage
    | LoanUsage
    | TierUsage
    | TierPurged
    | TierReceipt
    | Lost
)
