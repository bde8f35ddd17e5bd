"""Fairness among the users of one tenant: whose request is its zone's next one, by a Virtual Token Counter.

Each user has an account of the service that it has had, as zones have among themselves (``fair_queue``; Sheng et al.,
OSDI'24), and the one with the least is next. Unused time can't be banked: who comes back starts level with those that
wait. Priorities go first where the engine schedules by them; among requests of the same priority users are equal.

Of two users that both have requests of the same priority waiting all the time, neither gets more than twice what one
request of theirs can cost ahead of the other, besides what the requests that run at once can generate.

What is kept does not grow with the number of users that ever came: of one that has nothing waiting only what it had
ahead of the others is known, and that of a bounded number.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tenantzone_runtime.zones.fair_queue import Account, FairQueue

NO_USER: Final = ""
"""Whoever sends requests without naming a user: together one user."""

MAX_KEPT: Final = 4096
"""Users with nothing waiting of whom it is known what they had ahead of the others."""
_FEW: Final = 64
"""Users that are not worth tidying up."""


@dataclass(slots=True)
class _User:
    """What is known of one user."""

    service: float
    """Not less than that of any account of it."""
    charged: float = 0.0
    """What it was charged in all: one number, however many priorities its requests have."""
    accounts: dict[int, "UserAccount"] = field(default_factory=dict)
    """By priority, where it has requests waiting."""


class UserAccount(Account):
    """The account of one user among requests of one priority; it is charged whatever the user is charged.

    Args:
        name: of the user.
        user: what is known of it.
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
    """The users of one zone: how much service each had, and who of those that wait is next."""

    def __init__(self) -> None:
        self._users: dict[str, _User] = {}
        self._queues: dict[int, FairQueue] = {}
        """By priority, of users with waiting requests; the lowest number is first."""
        self._waiting: Counter[int] = Counter()
        """How many users are in each of these."""
        self._reached = 0.0
        """The most service that anybody had when it was next: nobody who comes is behind that."""
        self._tidy_above = _FEW

    def __len__(self) -> int:
        return len(self._users)

    def charge(self, user: str, cost: float) -> None:
        """Count service that a user was given; for the costs, see ``fair_queue``."""
        known = self._known(user)
        known.service = max(known.service, self._reached) + cost
        known.charged += cost

    def enter(self, user: str, priority: int) -> None:
        """Let a user wait that has its first waiting request of this priority."""
        known = self._known(user)
        if priority not in known.accounts:
            known.service = max(known.service, self._reached)
            account = known.accounts[priority] = UserAccount(user, known)
            self._queues.setdefault(priority, FairQueue()).enter(account)
            self._waiting[priority] += 1

    def leave(self, user: str, priority: int) -> None:
        """Let a user wait no more that has no waiting request of this priority any longer."""
        known = self._users[user]
        account = known.accounts.pop(priority)
        self._queues[priority].leave(account)
        self._waiting[priority] -= 1
        if not self._waiting[priority]:
            del self._queues[priority], self._waiting[priority]

    def next(self) -> tuple[str, int]:
        """The user whose request is next, and of which priority.

        Raises:
            IndexError: nobody waits.
        """
        if not self._queues:
            raise IndexError("nobody waits")
        priority = min(self._queues)
        account = self._queues[priority].next(lambda _: True)
        assert isinstance(account, UserAccount), "a queue without anybody is not kept"
        self._reached = max(self._reached, account.service)
        return account.name, priority

    def first(self) -> Iterator[tuple[str, int]]:
        """Those that wait, with the priority, roughly in the order in which they come; nothing may change meanwhile."""
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
        """Forget who has nothing waiting and nothing ahead of the others; of the rest, who has least."""
        ahead = {name: each for name, each in self._users.items() if each.accounts or each.service > self._reached}
        idle = sorted((each.service, name) for name, each in ahead.items() if not each.accounts)
        for _, name in idle[: max(0, len(idle) - MAX_KEPT)]:
            del ahead[name]
        self._users = ahead
        self._tidy_above = max(_FEW, 2 * len(ahead))
