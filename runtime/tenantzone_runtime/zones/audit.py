"""Events of the audit journal: who was granted, lent, evicted, preempted and refused what, and why.

The core notes it in the :mod:`~tenantzone_runtime.zones.trail` as it happens. Zones go by their tenant. Nothing here
knows of prompts, of tokens or of their hashes.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tenantzone_contract.report import EvictionReason
from tenantzone_contract.tiers import AnyTierName

Change = Literal["declared", "registered", "changed", "active", "idle", "evicted", "leaving", "removed", "forgotten"]
"""declared, changed, removed: by the config; a zone that is removed while requests of it run is leaving until they end.
registered, forgotten: for a tenant without a TenantZone. active, idle, evicted: the state that it is in now.
"""

PreemptionReason = Literal["reclaim", "seat", "adapter", "encoder", "due", "own", "reset", "violation"]
"""reclaim: for a zone that is entitled to the blocks. seat: for one that is entitled to the seat. adapter: its adapter
gave up its slot for another one. encoder: for a zone that comes before it and waits for room in the encoder. due: a
loan and its grace are over. own: for the zone itself. reset: the prefix cache was reset. violation: it was caught
with a block that is not its zone's.
"""

RefusalReason = Literal["unbound", "unknown_tenant", "too_long", "unsupported", "changed_adapter", "queue_full"]
"""unbound: no valid seal of the front door. unknown_tenant: no zone. too_long: it could never fit the zone's limit.
unsupported: a kind of request that does not go with zones. changed_adapter: its LoRA adapter has other files than
when it was loaded. queue_full: as much of its zone waits as may.
"""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The event that a zone came, changed, or left."""

    kind: ClassVar = "lifecycle"
    zone: str
    change: Change


@dataclass(frozen=True, slots=True)
class Balance:
    """What a zone holds, and what it was granted and let go since the last collection.

    It holds what it held in its last balance (a zone that is new: nothing), and what was ``granted``, less what it
    ``released``, less what was evicted from it in the same collection. If none of its blocks has moved there is none.
    """

    kind: ClassVar = "balance"
    zone: str
    granted: int
    """Free blocks that it took."""
    above_reservation: int
    """The blocks among them that it holds above its reservation."""
    released: int
    """Blocks that its requests let go and that it did not keep cached."""
    held: int
    """Now, in use and cached."""


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
    """The event that a purge was carried out: nothing that the zone had computed before it is found any more."""

    kind: ClassVar = "purged"
    zone: str
    id: str
    """As somebody gave it."""
    evicted: int
    """Cached blocks that went; they are among those of ``Evicted`` with the reason ``purge``."""
    withdrawn: int
    """Blocks that requests used: they are free, and not cached, once they are let go."""


@dataclass(frozen=True, slots=True)
class Preempted:
    """The event that a running request of a zone was sent back to wait."""

    kind: ClassVar = "preempted"
    zone: str | None
    """None: a request from before any zone was declared."""
    requests: int
    reason: PreemptionReason
    beneficiary: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The event that requests were refused."""

    kind: ClassVar = "refused"
    zone: str | None
    """None where the request shows no tenant that could be believed."""
    requests: int
    reason: RefusalReason


@dataclass(frozen=True, slots=True)
class Violation:
    """The event that a request was about to use a block that is not its zone's; it was failed, and never served."""

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
    """From when the last of them were lent. None: when the lender asks for them."""


@dataclass(frozen=True, slots=True)
class Repaid:
    """Blocks that a borrower gave back since the last collection: loans, or parts of them, that are over."""

    kind: ClassVar = "repaid"
    lender: str
    borrower: str
    blocks: int
    after_seconds: float
    """How long the loan had stood when the last of them came back."""
    overdue: bool


@dataclass(frozen=True, slots=True)
class ConfigApplied:
    """The event that a config is in force."""

    kind: ClassVar = "config_applied"
    generation: int
    hash: str
    zones: int


@dataclass(frozen=True, slots=True)
class ConfigRefused:
    """The event that a config was refused; the one before stays in force."""

    kind: ClassVar = "config_refused"
    generation: int | None
    error: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What a zone has used since it came; each number only grows while ``counting_since`` stays the same."""

    kind: ClassVar = "usage"
    zone: str
    counting_since: float
    """When the zone came, on the clock that the core is given; the journal writes Unix time."""
    block_seconds: float
    """Blocks held, in use or cached, times seconds."""
    prompt_tokens: int
    cached_tokens: int
    """Of the prompt tokens, those found in the zone's cache."""
    generation_tokens: int
    computed_first_tokens: int
    """``zones.processed_tokens`` defines this and the next four."""
    recomputed_tokens: int
    rejected_draft_tokens: int
    loaded_tokens: int
    hit_tokens: int


@dataclass(frozen=True, slots=True)
class LoanUsage:
    """Block-seconds that a borrower has had of a lender; they only grow while ``counting_since`` stays the same."""

    kind: ClassVar = "loan_usage"
    lender: str
    borrower: str
    counting_since: float
    """When the loan began; or an earlier one of the same two zones whose total was not reported yet."""
    block_seconds: float


@dataclass(frozen=True, slots=True)
class TierUsage:
    """What a zone has used of a tier since it came there; it only grows while ``counting_since`` stays the same."""

    kind: ClassVar = "tier_usage"
    zone: str
    tier: AnyTierName
    counting_since: float
    """When the zone came, on the clock that the core is given; the journal writes Unix time."""
    byte_seconds: float
    """Bytes held times seconds."""


@dataclass(frozen=True, slots=True)
class TierPurged:
    """The event that a purge was carried out in a tier: nothing that the zone stored there is found any more."""

    kind: ClassVar = "tier_purged"
    zone: str
    tier: AnyTierName
    id: str
    """As somebody gave it."""
    evicted: int
    """Chunks that went."""
    withdrawn: int
    """Chunks that were in transfer: they go when that ends."""


@dataclass(frozen=True, slots=True)
class TierReceipt:
    """The event that what a zone had stored is removed from a tier's storage, to the last file."""

    kind: ClassVar = "tier_receipt"
    zone: str
    tier: AnyTierName
    id: str | None
    """Of the purge; None: the zone went."""
    chunks: int
    """That were found no more from then on."""
    files: int
    """That were removed since."""


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
