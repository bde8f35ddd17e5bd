"""The queue of waiting requests: one queue per zone, zones served by the fair queue.

vLLM stops admitting at the first request that does not fit. So this queue yields only requests that do: a zone whose
front may not take its blocks stands aside until the step is over, and delays nobody else. Inside a zone, vLLM's own
order holds (first come first served, or priority).
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy, create_request_queue
from vllm.v1.request import Request

from tenantzone_runtime.engine.requests import zone_of
from tenantzone_runtime.zones.fair_queue import Account, FairQueue
from tenantzone_runtime.zones.zone import Zone


class ZoneRequestQueue(RequestQueue):
    """Waiting requests by zone.

    Args:
        policy: vLLM's, for the order inside a zone.
        admissible: whether a request of a zone could be given its blocks now.
    """

    def __init__(self, policy: SchedulingPolicy, admissible: Callable[[Request], bool]) -> None:
        self._policy = policy
        self._admissible = admissible
        self._queues: dict[Account, RequestQueue] = {}
        self._fair = FairQueue()
        self._zoneless = Account()
        """Of requests from before any zone was declared."""
        self._next: Request | None = None

    def end_step(self) -> None:
        """What was refused in this step may be asked for again."""
        self._fair.end_round()
        self._next = None

    def set_aside(self, zone: Zone | None) -> None:
        """Yield no request of this zone until the step ends."""
        self._fair.set_aside(self._account(zone))
        self._next = None

    def fronts(self) -> list[Request]:
        """The next request of each zone, admissible or not."""
        return [queue.peek_request() for queue in self._queues.values()]

    def _account(self, zone: Zone | None) -> Account:
        return self._zoneless if zone is None else zone.account

    def _find_next(self) -> Request | None:
        if self._next is None:
            account = self._fair.next(lambda candidate: self._admissible(self._queues[candidate].peek_request()))
            if account is not None:
                self._next = self._queues[account].peek_request()
        return self._next

    def _queue_of(self, request: Request) -> RequestQueue:
        """The queue that the request is to enter."""
        account = self._account(zone_of(request))
        queue = self._queues.get(account)
        if queue is None:
            queue = self._queues[account] = create_request_queue(self._policy)
            self._fair.enter(account)
        self._next = None
        return queue

    def _drop_if_empty(self, account: Account) -> None:
        if not self._queues[account]:
            del self._queues[account]
            self._fair.leave(account)
        self._next = None

    def add_request(self, request: Request) -> None:
        self._queue_of(request).add_request(request)

    def prepend_request(self, request: Request) -> None:
        self._queue_of(request).prepend_request(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.prepend_request(request)

    def peek_request(self) -> Request:
        request = self._find_next()
        if request is None:
            raise IndexError("peek from an empty queue")
        return request

    def pop_request(self) -> Request:
        """Take the next request out."""
        account = self._account(zone_of(self.peek_request()))
        request = self._queues[account].pop_request()
        self._drop_if_empty(account)
        return request

    def remove_request(self, request: Request) -> None:
        account = self._account(zone_of(request))
        self._queues[account].remove_request(request)
        self._drop_if_empty(account)

    def remove_requests(self, requests: Iterable[Request]) -> None:
        by_account: dict[Account, set[Request]] = {}
        for request in requests:
            by_account.setdefault(self._account(zone_of(request)), set()).add(request)
        for account, leaving in by_account.items():
            if account in self._queues:
                self._queues[account].remove_requests(leaving)
                self._drop_if_empty(account)

    def __getitem__(self, index: int) -> Request:
        return next(islice(self, index, None))

    def __bool__(self) -> bool:
        """Whether there is a request that can be admitted now."""
        return self._find_next() is not None

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def __iter__(self) -> Iterator[Request]:
        for queue in self._queues.values():
            yield from queue
