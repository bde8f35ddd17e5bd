"""Waiting requests by zone, zones served by the core's fair queue: the adapter's request queue, without vLLM."""

from collections import deque
from collections.abc import Callable, Iterator

from bench.simulator.fairness import Fairness
from bench.simulator.request import Request
from tenantzone_runtime.zones.fair_queue import Account, FairQueue
from tenantzone_runtime.zones.zone import Zone


class Waiting:
    """First come, first served inside a zone.

    Args:
        admissible: whether a zone's next request could be given its blocks now.
        fairness: told which zones begin to wait.
    """

    def __init__(self, admissible: Callable[[Request], bool], fairness: Fairness) -> None:
        self.asked: set[Account] = set()
        """Accounts whose next request was looked at in this round."""
        self.refused: set[Account] = set()
        """Those of them whose next request could not be admitted."""
        self._admissible = admissible
        self._fairness = fairness
        self._fair = FairQueue()
        self._queues: dict[Account, deque[Request]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[Request]:
        for queue in self._queues.values():
            yield from queue

    def accounts(self) -> Iterator[Account]:
        """Of the zones with waiting requests."""
        return iter(self._queues)

    def fronts(self) -> Iterator[Request]:
        """The next request of each zone."""
        return (queue[0] for queue in self._queues.values())

    def add(self, request: Request, zone: Zone) -> None:
        """A new request: after the zone's others."""
        self._queue_of(zone).append(request)

    def put_back(self, request: Request, zone: Zone) -> None:
        """A preempted request: before the zone's others."""
        self._queue_of(zone).appendleft(request)

    def pop_next(self) -> Request | None:
        """Take out the next request that can be admitted; None: no zone's can."""
        account = self._fair.next(self._ask)
        if account is None:
            return None
        queue = self._queues[account]
        request = queue.popleft()
        if not queue:
            del self._queues[account]
            self._fair.leave(account)
        return request

    def end_round(self) -> None:
        """Those that could not be admitted may be asked again."""
        before = [(account, account.service) for account in self.refused]
        self._fair.end_round()
        for account, service in before:
            if account.service != service:
                self.asked.clear()
        self.refused.clear()

    def _ask(self, account: Account) -> bool:
        self.asked.add(account)
        if self._admissible(self._queues[account][0]):
            return True
        self.refused.add(account)
        return False

    def _queue_of(self, zone: Zone) -> deque[Request]:
        queue = self._queues.get(zone.account)
        if queue is None:
            queue = self._queues[zone.account] = deque()
            self._fair.enter(zone.account)
            self._fairness.entered(zone.account)
        return queue
