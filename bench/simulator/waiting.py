"""The queues of waiting requests, one per zone; the arbiter selects the next zone."""

from collections import deque
from collections.abc import Iterator
from itertools import islice

from bench.simulator.request import Request
from tenantzone_runtime.zones.model.zone import Zone


class Waiting:
    """Waiting requests by zone, in FIFO order within each zone."""

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
        """Returns the next request of a zone that has waiting requests."""
        return self._queues[zone][0]

    def fronts(self, zone: Zone, count: int) -> list[Request]:
        """Returns at most ``count`` of a zone's next requests, in order; the zone has at least one."""
        return list(islice(self._queues[zone], count))

    def add(self, request: Request) -> None:
        """Add a new request at the end of its zone's queue."""
        self._queues.setdefault(request.zone, deque()).append(request)

    def put_back(self, request: Request) -> None:
        """Add a preempted request at the front of its zone's queue."""
        self._queues.setdefault(request.zone, deque()).appendleft(request)

    def remove_front(self, zone: Zone) -> None:
        """Remove the next request of a zone."""
        queue = self._queues[zone]
        queue.popleft()
        if not queue:
            del self._queues[zone]
