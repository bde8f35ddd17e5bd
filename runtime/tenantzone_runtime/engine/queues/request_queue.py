"""The queue of waiting requests, which consists of one queue per zone. The arbiter decides which request is next.

vLLM stops admitting at the first request that does not fit, so this queue returns only requests that fit. Within a
zone, requests are in vLLM's order (first come, first served, or by priority), or users take turns. Until zones are
declared, this queue behaves like vLLM's queue.

No step considers a request that waits for its grammar or for a tier (module ``deferred_requests``). If several requests
of a zone wait for the slot of one adapter, a step considers only the first request (module ``adapter_lines``).
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy, create_request_queue
from vllm.v1.request import Request, RequestStatus

from tenantzone_runtime.engine.blocks.requests import zone_of
from tenantzone_runtime.engine.queues.adapter_lines import AdapterLines
from tenantzone_runtime.engine.queues.deferred_requests import DeferredRequests
from tenantzone_runtime.engine.queues.load_queue import LoadQueue
from tenantzone_runtime.engine.queues.placed_queue import PlacedQueue, take_last_place
from tenantzone_runtime.engine.queues.user_queue import UserRequestQueue
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule.arbiter import Arbiter


class ZoneRequestQueue(RequestQueue):
    """Waiting requests in one queue per zone. Returns only requests that the arbiter admits.

    Args:
        policy: vLLM's scheduling policy, for the order within a zone.
        is_looking_up: returns whether a request waits for a tier to look up or load its chunks.
    """

    arbiter: Arbiter[Request]
    """The arbiter. It needs this queue, so the scheduler sets this attribute after it has created both."""
    adapters: AdapterLines
    """Waiting requests that use LoRA adapters. They need the arbiter, so the scheduler sets this attribute later."""
    is_passed_over: Callable[[Request], None]
    """Called for each request that is kept out of its zone's queue to wait for an adapter slot."""
    loads: LoadQueue
    """The requests that have left this queue because their tier hits are being loaded."""

    def __init__(self, policy: SchedulingPolicy, is_looking_up: Callable[[Request], bool]) -> None:
        self._policy = policy
        self._before_zones = create_request_queue(policy)
        self._queues: dict[Zone, PlacedQueue | UserRequestQueue] = {}
        self._deferred = DeferredRequests(is_looking_up)
        self._waiting = 0
        """Total length of all zones' queues. Counted, because vLLM needs it in each step, for thousands of queues."""

    def front(self, zone: Zone) -> Request:
        """Returns the next request of a zone, even if it is not admissible. The zone's queue must not be empty."""
        return self._queues[zone].peek_request()

    def fronts(self, zone: Zone, count: int) -> list[Request]:
        """Returns up to ``count`` next requests of a zone, in order. The zone's queue must not be empty."""
        return list(islice(self._queues[zone], count))

    def adopt(self) -> None:
        """Move requests that arrived before zones were declared into the queue of their new zone."""
        requests = list(self._before_zones)
        self._before_zones = create_request_queue(self._policy)
        for request in requests:
            self.add_request(request)
        self.note_preparations()

    @property
    def ready_count(self) -> int:
        """Number of requests that a step may consider, because they wait neither for a grammar nor for a tier."""
        return self._waiting

    def put_back_arrived(self) -> list[Request]:
        """Move requests that are no longer deferred back to their places in the zones' queues.

        Returns:
            Requests whose grammars can't be compiled. They have left the queue, and the caller must end them.
        """
        failed: list[Request] = []
        left: set[Zone] = set()
        for request in self._deferred.take_arrived():
            structured, zone = request.structured_output_request, zone_of(request)
            if structured is not None and isinstance(structured.grammar, Exception):
                failed.append(request)
            elif zone is not None:
                self._enter(request, zone)
            if zone is not None:
                left.add(zone)
        for zone in left:
            self._note_preparation(zone)
        for request in self.adapters.take_admissible() if len(self.adapters) else ():
            self._put_back(request)
        return failed

    def _queue_of(self, zone: Zone) -> PlacedQueue | UserRequestQueue:
        """Returns the queue that a request of the zone enters."""
        queue = self._queues.get(zone)
        if queue is None:
            queue = self._queues[zone] = self._new_queue(zone)
        return queue

    def _new_queue(self, zone: Zone) -> PlacedQueue | UserRequestQueue:
        return PlacedQueue(self._policy) if zone.users is None else UserRequestQueue(self._policy, zone.users)

    def order_anew(self, zone: Zone) -> None:
        """Reorder a zone's requests, because a new spec may have turned fairness among users on or off."""
        queue = self._queues.get(zone)
        if queue is None or (queue.users if isinstance(queue, UserRequestQueue) else None) is zone.users:
            return
        requests = list(queue)
        queue.remove_requests(requests)
        self._queues[zone] = self._new_queue(zone)
        for request in requests:
            self._queues[zone].put_back(request)
        self.adapters.order_anew(zone)
        self.arbiter.waits(zone)

    def _has_changed(self, zone: Zone) -> None:
        if self._queues[zone]:
            self.arbiter.waits(zone)
        else:
            del self._queues[zone]
            self.arbiter.waits_no_more(zone)
            self._note_preparation(zone)

    def load_has_ended(self, request: Request) -> None:
        """Record that a request whose load had begun is now running or has ended."""
        zone = zone_of(request)
        if zone is not None:
            self._note_preparation(zone)

    def note_preparations(self) -> None:
        """Report to the arbiter the preparation for which each zone waits, for example when a pause begins or ends."""
        for zone in {*map(zone_of, self._deferred), *map(zone_of, self.loads)}:
            if zone is not None:
                self._note_preparation(zone)

    def _note_preparation(self, zone: Zone) -> None:
        """Report to the arbiter whether all waiting requests of a zone wait for grammars or tiers, and for which."""
        if zone not in self._queues:
            self.arbiter.must_be_prepared(zone, self._deferred.reason(zone) or self.loads.reason(zone))

    def add_request(self, request: Request) -> None:
        zone = zone_of(request)
        if zone is None:
            self._before_zones.add_request(request)
            return
        take_last_place(request)
        if self._deferred.defer(request, zone):
            self._note_preparation(zone)
        else:
            self._enter(request, zone)

    def _enter(self, request: Request, zone: Zone) -> None:
        """Put a request at its place in its zone's queue, unless it must wait for an adapter slot outside the queue."""
        if self.adapters.keep(request, zone):
            self.is_passed_over(request)
        else:
            self._put_back(request)

    def _put_back(self, request: Request) -> None:
        """Put a request at its place in its zone's queue."""
        zone = zone_of(request)
        assert zone is not None, "only a request of a zone has a place in a zone's queue"
        queue = self._queue_of(zone)
        front = queue.peek_request() if queue else None
        queue.put_back(request)
        self._waiting += 1
        # The arbiter need not be called unless another request is now the zone's first one.
        if queue.peek_request() is not front:
            self.arbiter.waits(zone)

    def prepend_request(self, request: Request) -> None:
        zone = zone_of(request)
        if zone is None:
            self._before_zones.prepend_request(request)
            return
        self.adapters.queued(request, zone)
        self._queue_of(zone).prepend_request(request)
        self._waiting += 1
        self._has_changed(zone)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Put back into the queue the requests that a step has skipped."""
        # `reversed` restores the order of arrival, because vLLM passes skipped requests in reverse order.
        requests = list(requests)
        leaving = {request for request in reversed(requests) if self._leaves_queue(request)}
        for request in requests:
            if request not in leaving:
                self.prepend_request(request)
        for zone in {zone for request in leaving if (zone := zone_of(request)) is not None}:
            for request in self.adapters.missing_in(zone):
                self._put_back(request)
            self._note_preparation(zone)

    def _leaves_queue(self, request: Request) -> bool:
        """Returns whether a skipped request must wait outside its zone's queue. If so, moves the request there."""
        zone = zone_of(request)
        return zone is not None and (self._deferred.defer(request, zone) or self.adapters.keep(request, zone))

    def peek_request(self) -> Request:
        """Returns the next request that can be admitted now. Evicts nothing: room is made on admission.

        Raises:
            IndexError: no request can be admitted now.
        """
        if self._before_zones:
            return self._before_zones.peek_request()
        request = self.arbiter.next_front() if self._queues else None
        if request is None:
            raise IndexError("peek from an empty queue")
        return request

    def pop_request(self) -> Request:
        """Remove and return the next request. Make the room that it needs, unless the scheduler has made it already.

        Raises:
            IndexError: no request can be admitted now.
        """
        if self._before_zones:
            return self._before_zones.pop_request()
        request = self.arbiter.admit_next()
        if request is None:
            raise IndexError("no request can be admitted now")
        zone = zone_of(request)
        assert zone is not None, "requests outside of zones are popped first"
        request = self._queues[zone].pop_request()
        if request.status == RequestStatus.WAITING_FOR_REMOTE_KVS:
            self.loads.begin(request)
        successors = self.adapters.popped(request, zone)
        for successor in successors:
            self._queues[zone].put_back(successor)
        self._waiting += len(successors) - 1
        self._has_changed(zone)
        return request

    def remove_request(self, request: Request) -> None:
        self.remove_requests([request])

    def remove_requests(self, requests: Iterable[Request]) -> None:
        by_zone: dict[Zone | None, set[Request]] = {}
        for request in requests:
            zone = zone_of(request)
            if not self._deferred.discard(request):
                by_zone.setdefault(zone, set()).add(request)
            elif zone is not None:
                self._note_preparation(zone)
        for zone, leaving in by_zone.items():
            if zone is None:
                self._before_zones.remove_requests(leaving)
            elif zone in self._queues:
                queue = self._queues[zone]
                before = len(queue)
                queue.remove_requests(leaving)
                for successor in self.adapters.removed(leaving, zone):
                    queue.put_back(successor)
                self._waiting += len(queue) - before
                self._has_changed(zone)

    def __getitem__(self, index: int) -> Request:
        return next(islice(self, index, None))

    def __bool__(self) -> bool:
        """Whether a request can be admitted now. Evicts nothing."""
        return bool(self._before_zones) or (bool(self._queues) and self.arbiter.has_admissible())

    def __len__(self) -> int:
        return len(self._before_zones) + self._waiting + len(self._deferred) + len(self.adapters)

    def __iter__(self) -> Iterator[Request]:
        yield from self._before_zones
        for queue in self._queues.values():
            yield from queue
        yield from self.adapters
        yield from self._deferred
