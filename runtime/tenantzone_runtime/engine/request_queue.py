"""The queue of waiting requests: one queue per zone, zones served in turn.

vLLM stops admitting at the first request that does not fit. So this queue yields only requests that do: the front of a
zone that may not take the blocks is set aside until the next step, and delays nobody else. Inside a zone, vLLM's own
order holds (first come first served, or priority).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy, create_request_queue
from vllm.v1.request import Request

from tenantzone_runtime.engine.kv_cache_manager import zone_of
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
        # In the order of service. The queue of requests without a zone is there under None.
        self._queues: OrderedDict[Zone | None, RequestQueue] = OrderedDict()
        self._set_aside: set[Zone | None] = set()
        self._next: Request | None = None

    def new_step(self) -> None:
        """What was refused in the last step may be asked for again."""
        self._set_aside.clear()
        self._next = None

    def set_aside(self, zone: Zone | None) -> None:
        """Yield no request of this zone until the next step."""
        self._set_aside.add(zone)
        self._next = None

    def end_turn(self, zone: Zone | None) -> None:
        """Serve this zone after all others."""
        if zone in self._queues:
            self._queues.move_to_end(zone)
        self._next = None

    def fronts(self) -> list[Request]:
        """The next request of each zone, admissible or not."""
        return [queue.peek_request() for queue in self._queues.values()]

    def _find_next(self) -> Request | None:
        if self._next is None:
            for zone, queue in self._queues.items():
                if zone in self._set_aside:
                    continue
                request = queue.peek_request()
                if zone is None or self._admissible(request):
                    self._next = request
                    break
                self._set_aside.add(zone)
        return self._next

    def add_request(self, request: Request) -> None:
        self._queue_of(request).add_request(request)
        self._next = None

    def _queue_of(self, request: Request) -> RequestQueue:
        zone = zone_of(request)
        queue = self._queues.get(zone)
        if queue is None:
            queue = self._queues[zone] = create_request_queue(self._policy)
        return queue

    def peek_request(self) -> Request:
        request = self._find_next()
        if request is None:
            raise IndexError("peek from an empty queue")
        return request

    def pop_request(self) -> Request:
        """Take the next request out; its zone's turn is over."""
        zone = zone_of(self.peek_request())
        queue = self._queues[zone]
        request = queue.pop_request()
        if queue:
            self._queues.move_to_end(zone)
        else:
            del self._queues[zone]
        self._next = None
        return request

    def prepend_request(self, request: Request) -> None:
        self._queue_of(request).prepend_request(request)
        self._next = None

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.prepend_request(request)

    def remove_request(self, request: Request) -> None:
        zone = zone_of(request)
        self._queues[zone].remove_request(request)
        self._drop_if_empty(zone)
        self._next = None

    def remove_requests(self, requests: Iterable[Request]) -> None:
        by_zone: dict[Zone | None, set[Request]] = {}
        for request in requests:
            by_zone.setdefault(zone_of(request), set()).add(request)
        for zone, leaving in by_zone.items():
            if zone in self._queues:
                self._queues[zone].remove_requests(leaving)
                self._drop_if_empty(zone)
        self._next = None

    def _drop_if_empty(self, zone: Zone | None) -> None:
        if not self._queues[zone]:
            del self._queues[zone]

    def __bool__(self) -> bool:
        """Whether there is a request that can be admitted now."""
        return self._find_next() is not None

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def __iter__(self) -> Iterator[Request]:
        for queue in self._queues.values():
            yield from queue
