"""A queue of waiting requests in vLLM's order, in which a request can return to its old place.

vLLM's first-come, first-served queue can add a request only at its ends.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from operator import attrgetter
from typing import Any, Final

from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy
from vllm.v1.request import Request, RequestStatus

from tenantzone_runtime.engine.blocks.requests import state_of

_PLACES: Final = count(1)
"""Generates each request's place in the order of arrival, from 1. Preempted requests get places below 1."""
_BY_PLACE: Final = attrgetter("zone_request.place")

_FEW: Final = 16
"""Maximum number of requests to remove by binary search. To remove more at once, the queue is scanned."""


def take_last_place(request: Request) -> None:
    """Give a request the last place in the order of arrival, even if it enters a queue later."""
    state_of(request).place = next(_PLACES)


class PlacedQueue(RequestQueue):
    """Waiting requests, sorted by arrival or by vLLM's priority.

    The queue is a sorted list with binary search, so adding and removing a request is cheap even if thousands wait.

    Args:
        policy: ``FCFS`` sorts by arrival, ``PRIORITY`` by priority and then by arrival.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._is_by_arrival = policy is SchedulingPolicy.FCFS
        # Without a key, requests are compared directly. vLLM's `Request` compares by priority and then by arrival.
        self._order: Callable[[Request], Any] | None = _BY_PLACE if self._is_by_arrival else None
        self._requests: list[Request] = []

    def add_request(self, request: Request) -> None:
        """Give a request the last place in the order of arrival, and add it."""
        take_last_place(request)
        self.put_back(request)

    def put_back(self, request: Request) -> None:
        """Add a request at its place."""
        insort(self._requests, request, key=self._order)

    def prepend_request(self, request: Request) -> None:
        """Add a skipped request at its place, or a preempted request before all others."""
        state = state_of(request)
        if self._is_by_arrival and (request.status == RequestStatus.PREEMPTED or state.place is None):
            first = _BY_PLACE(self._requests[0]) if self._requests else 1
            state.place = min(first, 1) - 1
        self.put_back(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.prepend_request(request)

    def peek_request(self) -> Request:
        """Returns the first request.

        Raises:
            IndexError: the queue is empty.
        """
        return self._requests[0]

    def pop_request(self) -> Request:
        """Remove and return the first request.

        Raises:
            IndexError: the queue is empty.
        """
        return self._requests.pop(0)

    def remove_request(self, request: Request) -> None:
        self.remove_requests([request])

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Remove requests. Requests that are not in the queue are ignored."""
        leaving = set(requests)
        if len(leaving) > _FEW:
            self._requests = [request for request in self._requests if request not in leaving]
            return
        # If thousands of clients disconnect one by one, scanning the queue for each request would take quadratic time.
        for request in leaving:
            index = self._index(request)
            if index is not None:
                del self._requests[index]

    def _index(self, request: Request) -> int | None:
        """Returns the index of a request in the queue, or None if it is not in the queue."""
        if self._is_by_arrival and state_of(request).place is None:
            return None
        key = self._order(request) if self._order is not None else request
        # Requests with the same place, or with equal priority and arrival time, are adjacent.
        begin = bisect_left(self._requests, key, key=self._order)
        end = bisect_right(self._requests, key, lo=begin, key=self._order)
        return next((index for index in range(begin, end) if self._requests[index] is request), None)

    def __bool__(self) -> bool:
        return bool(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)
