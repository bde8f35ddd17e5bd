"""The fair queue: which zone's waiting request is admitted next, by a weighted Virtual Token Counter.

Each zone has an account of the service that it has received: the cost of its tokens, divided by the zone's weight. The
zone with the least service is next. A zone that returns after a pause starts level with the others, so it can't save up
unused time. A zone whose request can't be admitted now is set aside and delays no other zone. It keeps its position at
the front, but gains no credit meanwhile. Otherwise it would later be served alone for as long as it had waited for
blocks.

The algorithm is Sheng et al., *Fairness in Serving Large Language Models*, OSDI'24 (VTC). It has this bound: if two
zones always have waiting requests, and these can be admitted, neither zone ever gets more than
``2 * max(INPUT * longest prompt, OUTPUT * tokens that fit the engine)`` ahead of the other, per unit of weight.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from sys import maxsize
from typing import Any, Final, TypeVar

INPUT: Final = 1.0
"""Cost of a computed prompt token. A prompt token found in the cache is free."""
OUTPUT: Final = 2.0
"""Cost of a generated token, which takes a step of its own. Both costs are those of the VTC paper."""

_FEW: Final = 64
"""Number of heap entries up to which a clean-up is not worthwhile."""


Place = tuple[float, int]
"""A place in the queue: the service, and a ticket to order equal service. The smallest place is first."""


@dataclass(slots=True, eq=False)
class Account:
    """The account of the service that one zone has received; ``weight`` is its share when zones compete."""

    weight: int = 1
    service: float = 0.0
    """Service in virtual tokens: cost divided by weight. The service never decreases."""
    ticket: int = 0
    """Ticket of the account's place; negative while the account is set aside or held; 0 if no request waits."""

    def charge(self, cost: float) -> None:
        """Add the cost of service that the zone was given."""
        self.service += cost / self.weight


_Entry = tuple[float, int, Account]
_E = TypeVar("_E", bound=tuple[Any, ...])


class FairQueue:
    """The accounts of zones with waiting requests, least service first.

    Finding the next account takes amortized logarithmic time: heap entries are updated only when they reach the top,
    and each charge makes at most one entry stale. Entries of zones that have left are removed when the heap has twice
    as many entries as were in use at the last clean-up.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Account]] = []
        self._max_places = _FEW
        self._aside: list[tuple[Account, int]] = []
        self._tickets = itertools.count(1)
        self._reached = 0.0
        """The highest service that an account had when it was served. Accounts enter the queue at or above it."""

    def enter(self, account: Account) -> None:
        """Enter the account of a zone that has waiting requests now, level with the other accounts."""
        if not account.ticket:
            self._line_up(account, self._new_place(account))

    def leave(self, account: Account) -> None:
        """Remove the account of a zone that has no waiting request any more."""
        account.ticket = 0

    def next(self, admissible: Callable[[Account], bool]) -> Account | None:
        """Returns the account to serve: of accounts whose next request can be admitted, the one with the least service.

        Accounts whose next request can't be admitted are set aside until :meth:`end_round`, unless ``admissible`` calls
        :meth:`hold` for them.

        Args:
            admissible: returns whether the next request of an account can be admitted.
        """
        while self._settle():
            account = self._heap[0][2]
            if admissible(account):
                self.serve(account)
                return account
            if account.ticket > 0:
                self.set_aside(account)
        return None

    def serve(self, account: Account) -> None:
        """Note that the next request of an account in the queue is served."""
        self._reached = max(self._reached, account.service)

    def in_order(self) -> Iterator[Account]:
        """Generate the accounts in the queue, least service first. The queue must not change meanwhile.

        The cost of each is logarithmic in the number of accounts before it.
        """
        if self._settle():
            yield self._heap[0][2]
            for entry in islice(in_order(self._heap, _current), 1, None):
                yield entry[2]

    def first(self) -> Iterator[Account]:
        """Generate the accounts in the queue, roughly in order, by their service when they were last considered.

        The cost of each is logarithmic in the number of accounts before it. The queue must not change meanwhile.
        """
        frontier = [(self._heap[0][:2], 0)] if self._heap else []
        while frontier:
            (_, ticket), index = heapq.heappop(frontier)
            account = self._heap[index][2]
            if ticket == account.ticket:
                yield account
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(self._heap):
                    heapq.heappush(frontier, (self._heap[child][:2], child))

    def place(self, account: Account) -> Place:
        """Returns the place in the queue that a held account would have."""
        return max(account.service, self._reached), abs(account.ticket)

    def set_aside(self, account: Account) -> None:
        """Do not serve this account until the round ends."""
        if account.ticket:
            account.ticket = -abs(account.ticket)
            self._aside.append((account, account.ticket))

    def hold(self, account: Account) -> None:
        """Do not serve this account until :meth:`release` or :meth:`call` returns it to the queue."""
        if account.ticket:
            account.ticket = -next(self._tickets)

    def release(self, account: Account) -> None:
        """Return a held account to the queue, behind accounts with the same service."""
        if account.ticket < 0:
            self._line_up(account, self._new_place(account))

    def call(self, account: Account) -> None:
        """Return a held account to its place in the queue."""
        self._line_up(account, self.place(account))

    def place_of_return(self, account: Account) -> Place:
        """Returns the place in the queue that :meth:`release` would give an account now."""
        return max(account.service, self._reached), maxsize

    def end_round(self) -> None:
        """Put back into the queue all accounts that were set aside."""
        aside, self._aside = self._aside, []
        for account, ticket in aside:
            # A different ticket means that the account has left the queue, or is held now.
            if account.ticket == ticket:
                self.release(account)

    def _new_place(self, account: Account) -> Place:
        return max(account.service, self._reached), next(self._tickets)

    def _line_up(self, account: Account, place: Place) -> None:
        account.service, account.ticket = place
        heapq.heappush(self._heap, (*place, account))
        if len(self._heap) > self._max_places:
            self._heap = [place for place in self._heap if place[1] == place[2].ticket]
            heapq.heapify(self._heap)
            self._max_places = max(_FEW, 2 * len(self._heap))

    def _settle(self) -> bool:
        """Update the top of the heap; returns whether an account is in the queue."""
        while self._heap:
            service, ticket, account = self._heap[0]
            if ticket != account.ticket:
                heapq.heappop(self._heap)
            elif service != account.service:
                heapq.heapreplace(self._heap, (account.service, ticket, account))
            else:
                return True
        return False


def in_order(heap: list[_E], current: Callable[[_E], _E | None]) -> Iterator[_E]:
    """Generate the entries of a heap in the order of their current values. The heap must not change meanwhile.

    Args:
        heap: the heap, in which entries may be stale.
        current: returns an entry's current value, which is at least the stale value; None to skip the entry.
    """
    frontier: list[tuple[_E, int]] = [(heap[0], 0)] if heap else []
    while frontier:
        entry, index = heapq.heappop(frontier)
        if index >= 0:
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(heap):
                    heapq.heappush(frontier, (heap[child], child))
            now = current(entry)
            if now is None:
                continue
            if now != entry:
                heapq.heappush(frontier, (now, -1))
                continue
        yield entry


def _current(entry: _Entry) -> _Entry | None:
    _, ticket, account = entry
    return (account.service, ticket, account) if ticket == account.ticket else None
