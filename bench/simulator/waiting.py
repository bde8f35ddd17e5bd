"""Waiting requests by zone. Whose turn it is, the arbiter says."""

from collections import deque
from collections.abc import Iterator
from itertools import islice

from bench.simulator.request import Request
from tenantzone_runtime.zones.zone import Zone


class Waiting:
    """First come, first served inside a zone."""

    def __init__(self) -> None:
        self._queues: dict[Zone, deque[Request]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[Request]:
        for queue in self._queues.values():
            yield from queue

    def __contains__(self, zone: Zone) -> bool:
        return zone in self._queues

    def zones(self) -> Iterator[Zone]:
        """Yields the zones with waiting requests."""
        return iter(self._queues)

    def front(self, zone: Zone) -> Request:
        """The next request of a zone that has one."""
        return self._queues[zone][0]

    def fronts(self, zone: Zone, count: int) -> list[Request]:
        """Returns at most ``count`` of a zone's next requests, in order; the zone has at least one."""
        return list(islice(self._queues[zone], count))

    def add(self, request: Request) -> None:
        """A new request: after its zone's others."""
        self._queues.setdefault(request.zone, deque()).append(request)

    def put_back(self, request: Request) -> None:
        """A preempted request: before its zone's others."""
        self._queues.setdefault(request.zone, deque()).appendleft(request)

    def remove_front(self, zone: Zone) -> None:
        """The zone's next request waits no more."""
        queue = self._queues[zone]
        queue.popleft()
        if not queue:
            del self._queues[zone]
