"""The waiting requests of a zone with fairness among its tenant's users, in one queue per user and priority.

The zone core (``zones.model.users``) decides which user is next. Requests of one user are in vLLM's order. As in vLLM,
preempted requests precede all others.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy
from vllm.v1.request import Request, RequestStatus

from tenantzone_runtime.engine.blocks.requests import user_of
from tenantzone_runtime.engine.queues.placed_queue import PlacedQueue, take_last_place
from tenantzone_runtime.zones.model.users import Users


class UserRequestQueue(RequestQueue):
    """Waiting requests of one zone, by user.

    The arbiter remembers why the next request could not be admitted. So the next request stays the same until it leaves
    the queue, or until a preempted request or a request with a higher priority arrives.

    Args:
        policy: vLLM's scheduling policy, for the order of one user's requests. Priorities precede fairness among users.
        users: the zone's users.
    """

    def __init__(self, policy: SchedulingPolicy, users: Users) -> None:
        self.users = users
        self._policy = policy
        self._preempted = PlacedQueue(SchedulingPolicy.FCFS)
        self._queues: dict[tuple[str, int], PlacedQueue] = {}
        self._waiting = 0
        """Number of requests in all queues."""
        self._next: tuple[str, int] | None = None
        """User and priority of the next request, or None if the zone core must select them again."""

    def add_request(self, request: Request) -> None:
        take_last_place(request)
        self.put_back(request)

    def put_back(self, request: Request) -> None:
        """Add a request at its place among its user's requests."""
        if self._is_first(request):
            self._preempted.put_back(request)
            self._waiting += 1
        else:
            self._enter(request).put_back(request)

    def prepend_request(self, request: Request) -> None:
        if self._is_first(request):
            self._preempted.prepend_request(request)
            self._waiting += 1
        else:
            self._enter(request).prepend_request(request)

    def _is_first(self, request: Request) -> bool:
        """Returns whether a request was preempted and precedes all users' requests."""
        return self._policy is SchedulingPolicy.FCFS and request.status == RequestStatus.PREEMPTED

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.prepend_request(request)

    def peek_request(self) -> Request:
        if self._preempted:
            return self._preempted.peek_request()
        return self._queues[self._place_of_next()].peek_request()

    def pop_request(self) -> Request:
        """Remove and return the next request."""
        if self._preempted:
            self._waiting -= 1
            return self._preempted.pop_request()
        place = self._place_of_next()
        request = self._queues[place].pop_request()
        self._left(place, 1)
        self._next = None
        return request

    def remove_request(self, request: Request) -> None:
        self.remove_requests([request])

    def remove_requests(self, requests: Iterable[Request]) -> None:
        leaving = set(requests)
        before = len(self._preempted)
        self._preempted.remove_requests(leaving)
        self._waiting -= before - len(self._preempted)
        for place in {self._place_of(request) for request in leaving} & self._queues.keys():
            before = len(self._queues[place])
            self._queues[place].remove_requests(leaving)
            self._left(place, before - len(self._queues[place]))

    def _place_of(self, request: Request) -> tuple[str, int]:
        return user_of(request), request.priority if self._policy is SchedulingPolicy.PRIORITY else 0

    def _place_of_next(self) -> tuple[str, int]:
        if self._next is None:
            self._next = self.users.next()
        return self._next

    def _enter(self, request: Request) -> PlacedQueue:
        """Count a request, and return the queue for the request's user and priority."""
        place = self._place_of(request)
        self._waiting += 1
        if place not in self._queues:
            self._queues[place] = PlacedQueue(self._policy)
            self.users.enter(*place)
        if self._next is not None and place[1] < self._next[1]:
            self._next = None
        return self._queues[place]

    def _left(self, place: tuple[str, int], count: int) -> None:
        self._waiting -= count
        if not self._queues[place]:
            del self._queues[place]
            self.users.leave(*place)
            if place == self._next:
                self._next = None

    def __getitem__(self, index: int) -> Request:
        return next(islice(self, index, None))

    def __bool__(self) -> bool:
        return self._waiting > 0

    def __len__(self) -> int:
        return self._waiting

    def __iter__(self) -> Iterator[Request]:
        """Iterate roughly in the order of admission: from the next request on, round-robin among users.

        The cost of the first item does not depend on the number of users.
        """
        yield from self._preempted
        if not self._queues:
            return
        first = self._place_of_next()
        behind = []
        for place in chain((first,), (place for place in self.users.first() if place != first)):
            requests = iter(self._queues[place])
            yield next(requests)
            behind.append(requests)
        while behind:
            for requests in list(behind):
                request = next(requests, None)
                if request is None:
                    behind.remove(requests)
                else:
                    yield request
