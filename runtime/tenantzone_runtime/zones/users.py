"""Fairness among the users of one tenant: whose request is its zone's next one, by a Virtual Token Counter.

Each user has an account of the service that it has had, as zones have among themselves (``fair_queue``; Sheng et al.,
OSDI'24), and the one with the least service is next. Unused time can't be saved: a user that returns starts level with
those that wait. Priorities come first if the engine schedules by them; among requests of the same priority users are
equal.

Of two users that both have requests of the same priority waiting all the time, neither gets more than twice the cost of
one of their requests ahead of the other, plus what concurrently running requests can generate.

Memory does not grow with the number of users that ever came: for a user without waiting requests only its lead over the
others is kept, and that of a bounded number of users.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tenantzone_runtime.zones.fair_queue import Account, FairQueue

NO_USER: Final = ""
"""The user of all requests that name no user."""

MAX_KEPT: Final = 4096
"""The most users without waiting requests whose lead over the others is kept."""
_FEW: Final = 64
"""A number of users that is not worth cleaning up."""


@dataclass(slots=True)
class _User:
    """The state of one user."""

    service: float
    """Its service; not less than that of any of its accounts."""
    charged: float = 0.0
    """Its total charges: one number, however many priorities its requests have."""
    accounts: dict[int, "UserAccount"] = field(default_factory=dict)
    """Its accounts by priority, if requests wait there."""


class UserAccount(Account):
    """The account of one user among requests of one priority; every charge of the user counts here.

    Args:
        name: of the user.
        user: its state.
    """

    __slots__ = ("_ahead", "_user", "name")

    def __init__(self, name: str, user: _User) -> None:
        self.name, self._user = name, user
        super().__init__(service=user.service)

    @property
    def service(self) -> float:
        return self._ahead + self._user.charged

    @service.setter
    def service(self, service: float) -> None:
        self._ahead = service - self._user.charged


class Users:
    """The users of one zone: the service of each, and which waiting user is next."""

    def __init__(self) -> None:
        self._users: dict[str, _User] = {}
        self._queues: dict[int, FairQueue] = {}
        """Users with waiting requests, by priority; the lowest number is first."""
        self._waiting: Counter[int] = Counter()
        """The number of users in each queue."""
        self._reached = 0.0
        """The most service that a user had when it was next: no new user starts behind it."""
        self._tidy_above = _FEW

    def __len__(self) -> int:
        return len(self._users)

    def charge(self, user: str, cost: float) -> None:
        """Count service that a user was given; for the costs, see ``fair_queue``."""
        known = self._known(user)
        known.service = max(known.service, self._reached) + cost
        known.charged += cost

    def enter(self, user: str, priority: int) -> None:
        """Add a user with its first waiting request of this priority."""
        known = self._known(user)
        if priority not in known.accounts:
            known.service = max(known.service, self._reached)
            account = known.accounts[priority] = UserAccount(user, known)
            self._queues.setdefault(priority, FairQueue()).enter(account)
            self._waiting[priority] += 1

    def leave(self, user: str, priority: int) -> None:
        """Remove a user that has no waiting request of this priority any more."""
        known = self._users[user]
        account = known.accounts.pop(priority)
        self._queues[priority].leave(account)
        self._waiting[priority] -= 1
        if not self._waiting[priority]:
            del self._queues[priority], self._waiting[priority]

    def next(self) -> tuple[str, int]:
        """Returns the user whose request is next, and its priority.

        Raises:
            IndexError: no user waits.
        """
        if not self._queues:
            raise IndexError("no user waits")
        priority = min(self._queues)
        account = self._queues[priority].next(lambda _: True)
        assert isinstance(account, UserAccount), "a queue without anybody is not kept"
        self._reached = max(self._reached, account.service)
        return account.name, priority

    def first(self) -> Iterator[tuple[str, int]]:
        """Yields the waiting users, with the priority, roughly in their order; the queue must not change meanwhile."""
        for priority in sorted(self._queues):
            for account in self._queues[priority].first():
                assert isinstance(account, UserAccount)
                yield account.name, priority

    def _known(self, user: str) -> _User:
        known = self._users.get(user)
        if known is None:
            if len(self._users) >= self._tidy_above:
                self._tidy_up()
            known = self._users[user] = _User(self._reached)
        return known

    def _tidy_up(self) -> None:
        """Forget users with neither waiting requests nor a lead, and then those with the smallest lead."""
        ahead = {name: each for name, each in self._users.items() if each.accounts or each.service > self._reached}
        idle = sorted((each.service, name) for name, each in ahead.items() if not each.accounts)
        for _, name in idle[: max(0, len(idle) - MAX_KEPT)]:
            del ahead[name]
        self._users = ahead
        self._tidy_above = max(_FEW, 2 * len(ahead))
