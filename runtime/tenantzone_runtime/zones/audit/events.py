"""Events of the audit journal: what zones were granted and lent, and which blocks and requests they lost, and why.

The core records them in the :mod:`~tenantzone_runtime.zones.audit.trail` as they happen. Zones are named by their
tenant. Events contain no prompts, tokens or hashes of them.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tenantzone_contract.reports.report import EvictionReason
from tenantzone_contract.zone_config.tiers import AnyTierName

Change = Literal["declared", "registered", "changed", "active", "idle", "evicted", "leaving", "removed", "forgotten"]
"""declared, changed, removed: by the config. leaving: the config has removed the zone, but its requests still
run. registered, forgotten: the zone is for a tenant without a TenantZone. active, idle, evicted: the zone's new state.
"""

PreemptionReason = Literal["reclaim", "seat", "adapter", "encoder", "due", "own", "reset", "violation"]
"""reclaim: for a zone that is entitled to the blocks. seat: for a zone that is entitled to the seat. adapter: the
request's adapter gave up its slot for another adapter. encoder: for a zone that waits for room in the encoder and has
precedence. due: the grace period of an overdue loan is over. own: for another request of the same zone. reset: the
prefix cache was reset. violation: the request was found with a block of another zone.
"""

RefusalReason = Literal["unbound", "unknown_tenant", "too_long", "unsupported", "changed_adapter", "queue_full"]
"""unbound: the request has no valid seal of the frontend. unknown_tenant: its tenant has no zone. too_long: it could
never fit the zone's limit. unsupported: zones do not support this kind of request. changed_adapter: the files of its
LoRA adapter have changed since the adapter was loaded. queue_full: the zone's queue is full.
"""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The event that a zone was added, changed or removed, or that its state changed."""

    kind: ClassVar = "lifecycle"
    zone: str
    change: Change


@dataclass(frozen=True, slots=True)
class Balance:
    """The number of blocks that a zone holds, and how many it was granted and released since the last collection.

    ``held`` is its value in the last balance (0 for a new zone), plus ``granted``, minus ``released``, minus the blocks
    evicted from the zone in the same collection. A zone without any such changes has no balance event.
    """

    kind: ClassVar = "balance"
    zone: str
    granted: int
    """Number of free blocks that the zone has taken."""
    above_reservation: int
    """Number of granted blocks that were above the zone's reservation."""
    released: int
    """Number of blocks that the zone's requests released and that it did not keep cached."""
    held: int
    """Number of blocks that the zone holds now, in use and cached."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """Cached blocks that a zone lost since the last collection, for one reason, to one beneficiary."""

    kind: ClassVar = "evicted"
    zone: str
    blocks: int
    reason: EvictionReason
    beneficiary: str | None
    """The zone that needed the blocks; None if no zone did."""


@dataclass(frozen=True, slots=True)
class Purged:
    """The event that a purge is complete: no request finds blocks that the zone cached before it."""

    kind: ClassVar = "purged"
    zone: str
    id: str
    """Id of the purge, as given in the request for it."""
    evicted: int
    """Number of cached blocks that were evicted. ``Evicted`` counts them, too, with the reason ``purge``."""
    withdrawn: int
    """Number of blocks in use by requests. They become free, and not cached, once they are released."""


@dataclass(frozen=True, slots=True)
class Preempted:
    """The event that a running request of a zone was preempted."""

    kind: ClassVar = "preempted"
    zone: str | None
    """The zone; None for a request that arrived before any zone was declared."""
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
    """The event that a request was about to use another zone's block. The request was failed before it did."""

    kind: ClassVar = "violation"
    zone: str | None
    block_id: int
    owner: str | None
    """The zone that owns the block; None if no zone does."""


@dataclass(frozen=True, slots=True)
class Lent:
    """The event that blocks were lent to a borrower, summed since the last collection."""

    kind: ClassVar = "lent"
    lender: str
    borrower: str
    blocks: int
    due_in_seconds: float | None
    """Seconds until the loan is due, from when its last blocks were lent. If None, it is due when the lender needs the
    blocks."""


@dataclass(frozen=True, slots=True)
class Repaid:
    """The event that a borrower has returned blocks of a loan, summed since the last collection."""

    kind: ClassVar = "repaid"
    lender: str
    borrower: str
    blocks: int
    after_seconds: float
    """Seconds from the start of the loan until its last blocks were returned."""
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
    """A zone's usage since it was created. The numbers never decrease while ``counting_since`` stays the same."""

    kind: ClassVar = "usage"
    zone: str
    counting_since: float
    """Time at which the zone was created, on the core's clock; the journal writes it as Unix time."""
    block_seconds: float
    """Blocks held, in use or cached, times seconds."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens found in the zone's cache."""
    generation_tokens: int
    computed_first_tokens: int
    """``zones.processed_tokens`` defines this field and the next four."""
    recomputed_tokens: int
    rejected_draft_tokens: int
    loaded_tokens: int
    hit_tokens: int


@dataclass(frozen=True, slots=True)
class LoanUsage:
    """Block-seconds that a borrower has had from a lender. They never decrease while ``counting_since`` is the same."""

    kind: ClassVar = "loan_usage"
    lender: str
    borrower: str
    counting_since: float
    """Time at which the loan began, or an earlier loan of the same two zones whose total was not reported yet."""
    block_seconds: float


@dataclass(frozen=True, slots=True)
class TierUsage:
    """A zone's usage of a tier since it was created there. It never decreases while ``counting_since`` is the same."""

    kind: ClassVar = "tier_usage"
    zone: str
    tier: AnyTierName
    counting_since: float
    """Time at which the zone was created, on the core's clock; the journal writes it as Unix time."""
    byte_seconds: float
    """Bytes held times seconds."""


@dataclass(frozen=True, slots=True)
class TierPurged:
    """The event that a purge is complete in a tier: no request finds chunks that the zone stored there before it."""

    kind: ClassVar = "tier_purged"
    zone: str
    tier: AnyTierName
    id: str
    """Id of the purge, as given in the request for it."""
    evicted: int
    """Number of chunks that were evicted."""
    withdrawn: int
    """Number of chunks that were in transfer. They are dropped when their transfers end."""


@dataclass(frozen=True, slots=True)
class TierReceipt:
    """The event that all files of a zone were removed from a tier's storage."""

    kind: ClassVar = "tier_receipt"
    zone: str
    tier: AnyTierName
    id: str | None
    """Id of the purge; None if the files were removed because the zone was removed."""
    chunks: int
    """Number of chunks that the purge or removal made unavailable."""
    files: int
    """Number of files that were removed afterwards."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Records missing from the journal, because events occurred faster than they could be collected or written."""

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
