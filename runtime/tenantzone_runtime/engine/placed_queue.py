"""A queue of waiting requests in vLLM's order, which a request can leave and come back to at its old place.

vLLM's own first-come-first-served queue has no places: what leaves it can only come back at one of its ends.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from operator import attrgetter
from typing import Any, Final

from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy
from vllm.v1.request import Request, RequestStatus

_PLACES: Final = count(1)
"""The place of each request in the order of arrival. A preempted request has had its turn: its place is below 1."""
_BY_PLACE: Final = attrgetter("place")

_FEW: Final = 16
"""Requests that are looked for one by one when they leave a queue, instead of going through the queue once."""


def take_last_place(request: Request) -> None:
    """Give a request the last place in the order of arrival, whether it enters a queue now or later."""
    request.place = next(_PLACES)


class PlacedQueue(RequestQueue):
    """Waiting requests, sorted by arrival or by vLLM's priority.

    A sorted list: to enter, to leave and to look at the first few requests moves pointers and compares a few requests,
    however many wait.

    Args:
        policy: by arrival (``FCFS``), or by priority first (``PRIORITY``).
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._is_by_arrival = policy is SchedulingPolicy.FCFS
        # By priority, vLLM's requests compare themselves.
        self._order: Callable[[Request], Any] | None = _BY_PLACE if self._is_by_arrival else None
        self._requests: list[Request] = []

    def add_request(self, request: Request) -> None:
        """Add a request behind all that came before it."""
        take_last_place(request)
        self.put_back(request)

    def put_back(self, request: Request) -> None:
        """Add a request at the place that it has."""
        insort(self._requests, request, key=self._order)

    def prepend_request(self, request: Request) -> None:
        """Add a request that was passed over at the place that it has, and a preempted one before all others."""
        if self._is_by_arrival and (request.status == RequestStatus.PREEMPTED or not hasattr(request, "place")):
            first = self._requests[0].place if self._requests else 1
            request.place = min(first, 1) - 1
        self.put_back(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.prepend_request(request)

    def peek_request(self) -> Request:
        """The first request.

        Raises:
            IndexError: the queue is empty.
        """
        return self._requests[0]

    def pop_request(self) -> Request:
        """Take out the first request.

        Raises:
            IndexError: the queue is empty.
        """
        return self._requests.pop(0)

    def remove_request(self, request: Request) -> None:
        self.remove_requests([request])

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Remove requests; those that are not in the queue are passed over."""
        leaving = set(requests)
        if len(leaving) > _FEW:
            self._requests = [request for request in self._requests if request not in leaving]
            return
        # Thousands of clients may hang up one after the other.
        for request in leaving:
            index = self._index(request)
            if index is not None:
                del self._requests[index]

    def _index(self, request: Request) -> int | None:
        """Returns where in the queue a request is; None: it is not in the queue."""
        if self._is_by_arrival and not hasattr(request, "place"):
            return None
        key = self._order(request) if self._order is not None else request
        # Requests of one place, or of equal priority and time of arrival, stand side by side.
        begin = bisect_left(self._requests, key, key=self._order)
        end = bisect_right(self._requests, key, lo=begin, key=self._order)
        return next((index for index in range(begin, end) if self._requests[index] is request), None)

    def __bool__(self) -> bool:
        return bool(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)
