"""Fairness among the users of one tenant: a Virtual Token Counter chooses the user whose request is the zone's next.

Like zones in ``fair_queue`` (Sheng et al., OSDI'24), each user has an account of the service that it has received, and
the user with the least service is next. A user can't save up unused time, because a user that returns starts level with
the waiting users. If the engine schedules by priority, requests of a better priority come first, and fairness applies
among requests of the same priority.

If two users always have waiting requests of the same priority, neither gets ahead of the other by more than twice the
cost of one of their requests, plus the tokens that concurrently running requests can generate.

Memory does not grow with the number of users. If a user has no waiting requests, only the user's lead over other users
is kept, and only for a bounded number of users.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tenantzone_runtime.zones.model.fair_queue import Account, FairQueue

NO_USER: Final = ""
"""The user of all requests that name no user."""

MAX_KEPT: Final = 4096
"""Maximum number of users without waiting requests whose lead over other users is kept."""
_FEW: Final = 64
"""Number of users up to which a clean-up is not worthwhile."""


@dataclass(slots=True)
class _User:
    """The state of one user."""

    service: float
    """The user's service in virtual tokens: at least the service of each of the user's accounts."""
    charged: float = 0.0
    """Sum of all charges of the user, for requests of any priority."""
    accounts: dict[int, "UserAccount"] = field(default_factory=dict)
    """The user's accounts by priority, for priorities in which the user has waiting requests."""


class UserAccount(Account):
    """The account of one user among requests of one priority. Charges for the user's other requests count, too.

    Args:
        name: name of the user.
        user: state of the user.
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
    """The users of one zone: the service that each has received, and which waiting user is next."""

    def __init__(self) -> None:
        self._users: dict[str, _User] = {}
        self._queues: dict[int, FairQueue] = {}
        """Queues of users with waiting requests, by priority. The lowest number is first."""
        self._waiting: Counter[int] = Counter()
        """Number of users in each queue."""
        self._reached = 0.0
        """The highest service that a user had when the user was next. New users start with at least this service."""
        self._tidy_above = _FEW

    def __len__(self) -> int:
        return len(self._users)

    def charge(self, user: str, cost: float) -> None:
        """Charge a user for service; see ``fair_queue`` for the costs."""
        known = self._known(user)
        known.service = max(known.service, self._reached) + cost
        known.charged += cost

    def enter(self, user: str, priority: int) -> None:
        """Note that a user now has a waiting request of this priority."""
        known = self._known(user)
        if priority not in known.accounts:
            known.service = max(known.service, self._reached)
            account = known.accounts[priority] = UserAccount(user, known)
            self._queues.setdefault(priority, FairQueue()).enter(account)
            self._waiting[priority] += 1

    def leave(self, user: str, priority: int) -> None:
        """Note that a user no longer has a waiting request of this priority."""
        known = self._users[user]
        account = known.accounts.pop(priority)
        self._queues[priority].leave(account)
        self._waiting[priority] -= 1
        if not self._waiting[priority]:
            del self._queues[priority], self._waiting[priority]

    def next(self) -> tuple[str, int]:
        """Returns the user whose request is next, and the priority of this request.

        Raises:
            IndexError: no user waits.
        """
        if not self._queues:
            raise IndexError("no user waits")
        priority = min(self._queues)
        account = self._queues[priority].next(lambda _: True)
        assert isinstance(account, UserAccount), "a queue without users must be removed"
        self._reached = max(self._reached, account.service)
        return account.name, priority

    def first(self) -> Iterator[tuple[str, int]]:
        """Generate waiting users and a priority for each, roughly in order. The queues must not change meanwhile."""
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
        """Forget idle users: those without a lead, and those with the smallest leads beyond ``MAX_KEPT`` users."""
        ahead = {name: each for name, each in self._users.items() if each.accounts or each.service > self._reached}
        idle = sorted((each.service, name) for name, each in ahead.items() if not each.accounts)
        for _, name in idle[: max(0, len(idle) - MAX_KEPT)]:
            del ahead[name]
        self._users = ahead
        self._tidy_above = max(_FEW, 2 * len(ahead))
