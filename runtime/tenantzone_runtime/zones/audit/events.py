"""Events of the audit journal: blocks that zones got, lent and lost, and requests that were preempted or refused.

The core records events in the :mod:`~tenantzone_runtime.zones.audit.trail`. An event names a zone by the zone's tenant.
Events contain no text and no token ids of prompts, and no hashes of prompts.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tenantzone_contract.reports.words import EvictionReason
from tenantzone_contract.zone_config.tiers import AnyTierName

Change = Literal["declared", "registered", "changed", "active", "idle", "evicted", "leaving", "removed", "forgotten"]
"""How a zone changed. declared, changed, removed: a config added, changed or removed the zone. leaving: a config has
removed the zone, but its requests still run. registered, forgotten: a zone for a tenant without a TenantZone was added
or removed. active, idle, evicted: the zone's new state."""

PreemptionReason = Literal["reclaim", "seat", "adapter", "encoder", "due", "own", "reset", "violation"]
"""Why a request was preempted. reclaim: another zone was entitled to the blocks. seat: another zone was entitled to the
seat. adapter: the request's LoRA adapter gave up its slot for another adapter. encoder: a zone ahead in the line waited
for room in the encoder. due: the grace period of an overdue loan was over. own: another request of the same zone needed
the blocks. reset: the prefix cache was reset. violation: the request was found with a block of another zone."""

RefusalReason = Literal["unbound", "unknown_tenant", "too_long", "unsupported", "changed_adapter", "queue_full"]
"""Why a request was refused. unbound: the request has no valid seal of the frontend. unknown_tenant: the tenant has no
zone. too_long: the request can never fit into its zone. unsupported: zones do not support this kind of request.
changed_adapter: the files of the LoRA adapter have changed since it was loaded. queue_full: the zone's queue is full.
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

    ``held`` equals the ``held`` of the zone's previous balance (0 for a new zone), plus ``granted``, minus
    ``released``, minus the blocks evicted since that balance. A zone without any such changes has no balance event.
    """

    kind: ClassVar = "balance"
    zone: str
    granted: int
    """Number of free blocks that the zone has taken."""
    above_reservation: int
    """Number of granted blocks that were above the zone's reservation."""
    released: int
    """Number of blocks that the zone's requests released and that were not kept in the cache."""
    held: int
    """Number of blocks that the zone holds now, in use and cached."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """The event that a zone lost cached blocks, summed since the last collection by reason and beneficiary."""

    kind: ClassVar = "evicted"
    zone: str
    blocks: int
    reason: EvictionReason
    beneficiary: str | None
    """The zone that needed the blocks; None if no zone did."""


@dataclass(frozen=True, slots=True)
class Purged:
    """The event that a purge is complete: no request finds blocks that the zone cached before the purge."""

    kind: ClassVar = "purged"
    zone: str
    id: str
    """Id of the purge, as given in the request for it."""
    evicted: int
    """Number of cached blocks that were evicted. ``Evicted`` counts them, too, with the reason ``purge``."""
    withdrawn: int
    """Number of blocks that requests still use. These blocks become free, and are not cached, when they are released.
    """


@dataclass(frozen=True, slots=True)
class Preempted:
    """The event that running requests of a zone were preempted, summed since the last collection."""

    kind: ClassVar = "preempted"
    zone: str | None
    """The zone; None for requests that arrived before any zone was declared."""
    requests: int
    reason: PreemptionReason
    beneficiary: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The event that requests were refused, summed since the last collection."""

    kind: ClassVar = "refused"
    zone: str | None
    """The zone; None if the requests have no trusted tenant."""
    requests: int
    reason: RefusalReason


@dataclass(frozen=True, slots=True)
class Violation:
    """The event that a request was about to use another zone's block. The request failed before it used the block."""

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
    """Seconds from the time when the last blocks were lent until the loan is due. If None, the loan is due when the
    lender needs the blocks."""


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
    """The event that a config was refused. The previous config stays active."""

    kind: ClassVar = "config_refused"
    generation: int | None
    error: str


@dataclass(frozen=True, slots=True)
class Usage:
    """A zone's usage since the zone was created. No number decreases while ``counting_since`` stays the same."""

    kind: ClassVar = "usage"
    zone: str
    counting_since: float
    """Time at which the zone was created, on the core's clock; the journal writes it as Unix time."""
    block_seconds: float
    """Number of blocks that the zone held (in use or cached), times seconds."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens found in the zone's cache."""
    generation_tokens: int
    computed_first_tokens: int
    """``zones.model.processed_tokens`` defines this field and the next four."""
    recomputed_tokens: int
    rejected_draft_tokens: int
    loaded_tokens: int
    hit_tokens: int


@dataclass(frozen=True, slots=True)
class LoanUsage:
    """A borrower's use of a lender's blocks. ``block_seconds`` never decreases while ``counting_since`` is the same."""

    kind: ClassVar = "loan_usage"
    lender: str
    borrower: str
    counting_since: float
    """Start of the loan, or of an earlier loan between these zones if its total was not reported yet."""
    block_seconds: float
    """Borrowed blocks times seconds."""


@dataclass(frozen=True, slots=True)
class TierUsage:
    """A zone's usage of a tier. ``byte_seconds`` never decreases while ``counting_since`` is the same."""

    kind: ClassVar = "tier_usage"
    zone: str
    tier: AnyTierName
    counting_since: float
    """Time at which the zone was created in the tier, on the core's clock; the journal writes it as Unix time."""
    byte_seconds: float
    """Bytes held times seconds."""


@dataclass(frozen=True, slots=True)
class TierPurged:
    """The event that a purge is complete in a tier: no request finds chunks that the zone stored before the purge."""

    kind: ClassVar = "tier_purged"
    zone: str
    tier: AnyTierName
    id: str
    """Id of the purge, as given in the request for it."""
    evicted: int
    """Number of chunks that were evicted."""
    withdrawn: int
    """Number of chunks that were in transfer. These chunks are dropped when their transfers end."""


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
    """The event that the journal lacks records, because events occurred faster than they were collected or written."""

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
