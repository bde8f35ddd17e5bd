"""What the zones did, for an auditor: who was granted, lent, evicted, preempted and refused what, and why.

The core notes it as it happens, in memory and added up, so that a step pays a dictionary entry and no more. Whoever
keeps the journal collects it from time to time. Zones go by their tenant. Nothing here knows of prompts, of tokens or
of their hashes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tenantzone_contract.report import EvictionReason

Change = Literal["declared", "registered", "changed", "active", "idle", "evicted", "leaving", "removed", "forgotten"]
"""declared, changed, removed: by the config; a zone that is removed while requests of it run is leaving until they end.
registered, forgotten: for a tenant without a TenantZone. active, idle, evicted: the state that it is in now.
"""

PreemptionReason = Literal["recall", "due", "own", "reset", "violation"]
"""recall: for a zone that is entitled to the blocks. due: a loan and its grace are over. own: for the zone itself.
reset: the prefix cache was reset. violation: it was caught with a block that is not its zone's.
"""

RefusalReason = Literal["unbound", "unknown_tenant", "too_long", "unsupported"]
"""unbound: no valid seal of the front door. unknown_tenant: no zone. too_long: it could never fit the zone's limit.
unsupported: a kind of request that does not go with zones.
"""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """A zone came, changed, or left."""

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
    """Of these, the ones that it holds above its reservation."""
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
class Preempted:
    """A running request of a zone was sent back to wait."""

    kind: ClassVar = "preempted"
    zone: str | None
    """None: a request from before any zone was declared."""
    requests: int
    reason: PreemptionReason
    beneficiary: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """Requests that were refused."""

    kind: ClassVar = "refused"
    zone: str | None
    """None where the request shows no tenant that could be believed."""
    requests: int
    reason: RefusalReason


@dataclass(frozen=True, slots=True)
class Violation:
    """A request was about to use a block that is not its zone's. It was failed, and never served."""

    kind: ClassVar = "violation"
    zone: str | None
    block_id: int
    owner: str | None
    """The zone that the block belongs to; None: no zone."""


@dataclass(frozen=True, slots=True)
class Lent:
    """A loan began."""

    kind: ClassVar = "lent"
    lender: str
    borrower: str
    blocks: int
    due_in_seconds: float | None
    """None: when the lender asks for it."""


@dataclass(frozen=True, slots=True)
class Repaid:
    """A loan, or a part of it, is over."""

    kind: ClassVar = "repaid"
    lender: str
    borrower: str
    blocks: int
    after_seconds: float
    overdue: bool


@dataclass(frozen=True, slots=True)
class ConfigApplied:
    """A config is in force."""

    kind: ClassVar = "config_applied"
    generation: int
    hash: str
    zones: int


@dataclass(frozen=True, slots=True)
class ConfigRefused:
    """A config was refused; the one before stays in force."""

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


@dataclass(frozen=True, slots=True)
class LoanUsage:
    """Block-seconds that a borrower has had of a lender since the engine started."""

    kind: ClassVar = "loan_usage"
    lender: str
    borrower: str
    counting_since: float
    block_seconds: float


Event = (
    Lifecycle
    | Balance
    | Evicted
    | Preempted
    | Refused
    | Violation
    | Lent
    | Repaid
    | ConfigApplied
    | ConfigRefused
    | Usage
    | LoanUsage
)


class Trail:
    """Notes what happens, and hands it over when it is collected.

    Args:
        held: blocks that a tenant's zone holds now; 0 if it has none.
    """

    def __init__(self, held: Callable[[str], int]) -> None:
        self._held = held
        self._events: list[Event] = []
        self._states: dict[str, Change] = {}
        self._told: dict[str, Change] = {}
        self._granted: Counter[str] = Counter()
        self._above_reservation: Counter[str] = Counter()
        self._released: Counter[str] = Counter()
        self._evicted: Counter[tuple[str, EvictionReason, str | None]] = Counter()
        self._preempted: Counter[tuple[str | None, PreemptionReason, str | None]] = Counter()
        self._refused: Counter[tuple[str | None, RefusalReason]] = Counter()

    def note(self, event: Event) -> None:
        """An event that is kept as it is, in order."""
        self._events.append(event)

    def state(self, zone: str, state: Change) -> None:
        """The state that a zone is in now. Of several between two collections the last one is told, if it is new."""
        self._states[zone] = state

    def left(self, zone: str, change: Change) -> None:
        """A zone is gone."""
        self._states.pop(zone, None)
        self._told.pop(zone, None)
        self.note(Lifecycle(zone, change))

    def granted(self, zone: str, blocks: int, above_reservation: int) -> None:
        self._granted[zone] += blocks
        if above_reservation:
            self._above_reservation[zone] += above_reservation

    def released(self, zone: str, blocks: int) -> None:
        self._released[zone] += blocks

    def evicted(self, zone: str, blocks: int, reason: EvictionReason, beneficiary: str | None) -> None:
        self._evicted[zone, reason, beneficiary] += blocks

    def preempted(self, zone: str | None, reason: PreemptionReason, beneficiary: str | None) -> None:
        self._preempted[zone, reason, beneficiary] += 1

    def refused(self, zone: str | None, reason: RefusalReason) -> None:
        self._refused[zone, reason] += 1

    def collect(self) -> list[Event]:
        """Everything since the last call: events in their order, then states, then what was added up."""
        events = self._events
        for zone, state in self._states.items():
            if self._told.get(zone) != state:
                self._told[zone] = state
                events.append(Lifecycle(zone, state))
        events += [Evicted(zone, blocks, reason, by) for (zone, reason, by), blocks in self._evicted.items()]
        events += self._balances()
        events += [Preempted(zone, number, reason, by) for (zone, reason, by), number in self._preempted.items()]
        events += [Refused(zone, number, reason) for (zone, reason), number in self._refused.items()]
        self._events = []
        self._states = {}
        sums: tuple[Counter[Any], ...] = (
            self._granted,
            self._above_reservation,
            self._released,
            self._evicted,
            self._preempted,
            self._refused,
        )
        for counter in sums:
            counter.clear()
        return events

    def _balances(self) -> Iterator[Balance]:
        """Of the zones whose blocks have moved."""
        for zone in dict.fromkeys([*self._granted, *self._released, *(zone for zone, _, _ in self._evicted)]):
            yield Balance(
                zone, self._granted[zone], self._above_reservation[zone], self._released[zone], held=self._held(zone)
            )
