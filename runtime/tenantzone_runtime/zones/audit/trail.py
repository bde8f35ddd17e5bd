"""The trail: a record of the zones' events, kept until the journal collects it.

Frequent events are summed, so that memory does not grow with the number of steps between collections. Both the number
of sums and the number of events that can't be summed are bounded. Further events count as lost.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from tenantzone_contract.reports.words import EvictionReason
from tenantzone_runtime.zones.audit.events import (
    Balance,
    Change,
    Event,
    Evicted,
    Lent,
    Lifecycle,
    LoanUsage,
    Lost,
    Preempted,
    PreemptionReason,
    RefusalReason,
    Refused,
    Repaid,
)

Pair = tuple[str, str]
"""The lender's tenant and the borrower's tenant."""

MAX_OF_A_KIND: Final = 50_000
"""Maximum number of notes of one kind between two collections. A reload that replaces 5,000 zones makes 20,000 such
notes."""


@dataclass(slots=True)
class _Balance:
    """The running balance of a zone; see ``audit.Balance``."""

    granted: int = 0
    above_reservation: int = 0
    released: int = 0
    held: int = 0


class Notes:
    """The notes of the events between two collections."""

    __slots__ = (
        "balances",
        "evicted",
        "in_order",
        "lent",
        "loans_over",
        "lost",
        "preempted",
        "refused",
        "repaid",
        "states",
    )

    def __init__(self) -> None:
        self.in_order: list[Event] = []
        self.states: dict[str, Change] = {}
        self.lent: dict[Pair, Lent] = {}
        self.repaid: dict[tuple[str, str, bool], Repaid] = {}
        self.loans_over: dict[Pair, LoanUsage] = {}
        self.balances: dict[str, _Balance] = {}
        self.evicted: dict[tuple[str, EvictionReason, str | None], int] = {}
        self.preempted: dict[tuple[str | None, PreemptionReason, str | None], int] = {}
        self.refused: dict[tuple[str | None, RefusalReason], int] = {}
        self.lost = 0

    def events(self) -> Iterator[Event]:
        """Generate the events: first those kept in order, then states, then sums, and then the number of lost ones."""
        yield from self.in_order
        for zone, state in self.states.items():
            yield Lifecycle(zone, state)
        yield from self.lent.values()
        yield from self.repaid.values()
        yield from self.loans_over.values()
        for (loser, eviction, beneficiary), blocks in self.evicted.items():
            yield Evicted(loser, blocks, eviction, beneficiary)
        for zone, moved in self.balances.items():
            yield Balance(zone, moved.granted, moved.above_reservation, moved.released, moved.held)
        for (victim, preemption, beneficiary), requests in self.preempted.items():
            yield Preempted(victim, requests, preemption, beneficiary)
        for (tenant, refusal), requests in self.refused.items():
            yield Refused(tenant, requests, refusal)
        if self.lost:
            yield Lost(self.lost)


class Trail:
    """Records events until they are collected.

    Args:
        max_of_a_kind: maximum number of notes of each kind between two collections. States do not count, because the
            number of zones bounds them.
    """

    def __init__(self, max_of_a_kind: int = MAX_OF_A_KIND) -> None:
        self._max = max_of_a_kind
        self._notes = Notes()
        self._reported: dict[str, Change] = {}

    def note(self, event: Event) -> None:
        """Note an event that is kept in order and is not summed."""
        if len(self._notes.in_order) < self._max:
            self._notes.in_order.append(event)
        else:
            self._notes.lost += 1

    def state(self, zone: str, state: Change) -> None:
        """Note a zone's new state. A collection reports only the zone's last state, and only if this state is new."""
        if self._reported.get(zone) == state:
            self._notes.states.pop(zone, None)
        else:
            self._notes.states[zone] = state

    def left(self, zone: str, change: Change) -> None:
        """Note that a zone was removed; ``change`` is ``removed`` or ``forgotten``."""
        self._notes.states.pop(zone, None)
        self._reported.pop(zone, None)
        self.note(Lifecycle(zone, change))

    def lent(self, lender: str, borrower: str, blocks: int, due_in_seconds: float | None) -> None:
        lent, pair = self._notes.lent, (lender, borrower)
        if self._has_room(lent, pair):
            before = lent[pair].blocks if pair in lent else 0
            lent[pair] = Lent(lender, borrower, before + blocks, due_in_seconds)

    def repaid(self, lender: str, borrower: str, blocks: int, after_seconds: float, *, overdue: bool) -> None:
        repaid, key = self._notes.repaid, (lender, borrower, overdue)
        if self._has_room(repaid, key):
            before = repaid[key].blocks if key in repaid else 0
            repaid[key] = Repaid(lender, borrower, before + blocks, after_seconds, overdue)

    def loan_over(self, usage: LoanUsage) -> None:
        """Note the final usage of a loan."""
        pair = usage.lender, usage.borrower
        if self._has_room(self._notes.loans_over, pair):
            self._notes.loans_over[pair] = usage

    def resume_loan(self, lender: str, borrower: str) -> LoanUsage | None:
        """Remove and return the unreported usage of the two zones' last loan, so that their next loan adds to it."""
        return self._notes.loans_over.pop((lender, borrower), None)

    def granted(self, zone: str, blocks: int, *, above_reservation: int, held: int) -> None:
        """Note that a zone took free blocks and now holds ``held`` blocks."""
        balance = self._balance(zone, held)
        if balance is not None:
            balance.granted += blocks
            balance.above_reservation += above_reservation

    def released(self, zone: str, blocks: int, *, held: int) -> None:
        """Note that a zone's requests released blocks, which are now free. The zone now holds ``held`` blocks."""
        balance = self._balance(zone, held)
        if balance is not None:
            balance.released += blocks

    def evicted(self, zone: str, blocks: int, reason: EvictionReason, beneficiary: str | None, *, held: int) -> None:
        """Note that a zone lost cached blocks and now holds ``held`` blocks."""
        self._balance(zone, held)
        evicted, key = self._notes.evicted, (zone, reason, beneficiary)
        if self._has_room(evicted, key):
            evicted[key] = evicted.get(key, 0) + blocks

    def _balance(self, zone: str, held: int) -> _Balance | None:
        """Returns the balance of a zone whose blocks change; None if there is no room for another balance."""
        balances = self._notes.balances
        balance = balances.get(zone)
        if balance is None:
            if not self._has_room(balances, zone):
                return None
            balance = balances[zone] = _Balance()
        balance.held = held
        return balance

    def preempted(self, zone: str | None, reason: PreemptionReason, beneficiary: str | None) -> None:
        preempted, key = self._notes.preempted, (zone, reason, beneficiary)
        if self._has_room(preempted, key):
            preempted[key] = preempted.get(key, 0) + 1

    def refused(self, zone: str | None, reason: RefusalReason) -> None:
        refused, key = self._notes.refused, (zone, reason)
        if self._has_room(refused, key):
            refused[key] = refused.get(key, 0) + 1

    def take(self) -> Notes:
        """Returns the notes since the last call. This is cheap, because events are made from the notes later."""
        notes, self._notes = self._notes, Notes()
        self._reported |= notes.states
        return notes

    def collect(self) -> list[Event]:
        """Returns the events since the last call."""
        return list(self.take().events())

    def _has_room(self, notes: Collection[object], key: object) -> bool:
        """Returns whether a note with this key can be kept. If not, counts the note as lost."""
        if key in notes or len(notes) < self._max:
            return True
        self._notes.lost += 1
        return False
