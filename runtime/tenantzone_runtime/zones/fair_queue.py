"""The fair queue: whose waiting request is admitted next, by a weighted Virtual Token Counter.

Each zone has an account of the service that it has had: tokens by what they cost, divided by the zone's weight. The one
with the least is served next. A zone that comes back after a pause starts level with the others: unused time can't be
banked. A zone whose request can't be admitted now stands aside and delays no other zone. It keeps its place at the
front, and accumulates no claim meanwhile: otherwise it would be served alone for as long as it had waited for blocks.

The algorithm is Sheng et al., *Fairness in Serving Large Language Models*, OSDI'24 (VTC). Its bound: of two zones that
both have requests waiting all the time, and whose requests can be admitted, neither gets more than
``2 * max(INPUT * longest prompt, OUTPUT * tokens that fit the engine)`` ahead of the other per unit of weight, however
long it takes.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

INPUT: Final = 1.0
"""What a prompt token costs that has to be computed; one found in the cache is free."""
OUTPUT: Final = 2.0
"""What a generated token costs: it takes a step of its own. The weights are those of the VTC paper."""

_FEW: Final = 64
"""Places in the heap that are not worth tidying up."""


Place = tuple[float, int]
"""In the queue: service, and of those with the same, a ticket. The least is first."""


@dataclass(slots=True, eq=False)
class Account:
    """The account of the service that one zone has had; ``weight`` is its share when zones compete."""

    weight: int = 1
    service: float = 0.0
    """In virtual tokens: cost over weight. Only grows."""
    ticket: int = 0
    """Of its place in the queue; negative while it stands aside; 0: no request of it waits."""

    def charge(self, cost: float) -> None:
        """Count service that the zone was given."""
        self.service += cost / self.weight


class FairQueue:
    """The accounts of zones with waiting requests, least service first.

    Finding the next one costs the logarithm of their number, averaged: places in the heap are brought up to date only
    when they come to its top, and each charge makes at most one of them stale. Those of zones that have left meanwhile
    go when the heap has twice as many as were in use when it was tidied up last.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Account]] = []
        self._max_places = _FEW
        self._aside: list[tuple[Account, int]] = []
        self._tickets = itertools.count(1)
        self._reached = 0.0
        """How far the queue has come: the most service that an account had when it was served. No account is behind."""

    def enter(self, account: Account) -> None:
        """Enter the account of a zone that has waiting requests now, level with those that wait already."""
        if not account.ticket:
            self._line_up(account, self._new_place(account))

    def leave(self, account: Account) -> None:
        """Take out the account of a zone that has no waiting request any more."""
        account.ticket = 0

    def next(
        self, admissible: Callable[[Account], bool], call: Callable[[Place | None], Account | None] | None = None
    ) -> Account | None:
        """The account to serve: of those whose next request can be admitted, the one with the least service.

        Those that can't stand aside until :meth:`end_round`, unless whoever finds that out holds them for longer.

        Args:
            admissible: whether the next request of an account can be admitted.
            call: says which account that was held is to be looked at before the one in this place, which is the first
                in the queue; None: none is.
        """
        while True:
            first = self._settle()
            if call is not None and (called := call(first)) is not None:
                self._line_up(called, self.place(called))
            elif first is None:
                return None
            account = self._heap[0][2]
            if admissible(account):
                self._reached = max(self._reached, account.service)
                return account
            if account.ticket > 0:
                self.set_aside(account)

    def first(self) -> Iterator[Account]:
        """The accounts in the queue, roughly in the order in which they come: as they stood when they were looked at.

        Finding the next one costs the logarithm of how many were taken. Nothing may change meanwhile.
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
        """The place in the queue at which an account that is held would stand."""
        return max(account.service, self._reached), abs(account.ticket)

    def set_aside(self, account: Account) -> None:
        """Do not serve this account until the round ends."""
        if account.ticket:
            account.ticket = -abs(account.ticket)
            self._aside.append((account, account.ticket))

    def hold(self, account: Account) -> None:
        """Do not serve this account until it is released, or called."""
        if account.ticket:
            account.ticket = -next(self._tickets)

    def release(self, account: Account) -> None:
        """Put an account that was held back into the queue."""
        if account.ticket < 0:
            self._line_up(account, self._new_place(account))

    def end_round(self) -> None:
        """Put the accounts that stood aside back into the queue."""
        aside, self._aside = self._aside, []
        for account, ticket in aside:
            # Else it left, or is held now.
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

    def _settle(self) -> Place | None:
        """Bring the top of the heap up to date, and return its place; None if there is none."""
        while self._heap:
            service, ticket, account = self._heap[0]
            if ticket != account.ticket:
                heapq.heappop(self._heap)
            elif service != account.service:
                heapq.heapreplace(self._heap, (account.service, ticket, account))
            else:
                return service, ticket
        return None
