"""A queue of requests whose tier hits are being loaded into their blocks, until the requests run.

vLLM considers these requests first in each step, and stops admitting at the first request that can't run. So this queue
returns a request only when its load has landed (ended) and the request can run. From the start of its load, a request
has a seat and the blocks for its whole prompt, so it can't be refused blocks afterwards.
"""

from collections.abc import Callable, Iterable, Iterator

from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import Request

from tenantzone_runtime.engine.blocks.requests import zone_of
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tenancy import Preparation


class LoadQueue(RequestQueue):
    """Requests whose loads have begun, in the order in which the loads began.

    Args:
        has_landed: returns whether a request's load has landed.
        can_go_on: returns False if vLLM would skip a request although its load has landed.
        going_on: called with each request that leaves the queue to run.
        has_left: called with each request that has left the queue, because it runs or has ended.
    """

    def __init__(
        self,
        has_landed: Callable[[Request], bool],
        can_go_on: Callable[[Request], bool],
        going_on: Callable[[Request], None],
        has_left: Callable[[Request], None],
    ) -> None:
        self.has_landed = has_landed
        self._can_go_on = can_go_on
        self._going_on = going_on
        self._has_left = has_left
        self._requests: dict[Request, None] = {}
        self._peeked: Request | None = None
        """Request that vLLM has peeked at. ``pop_request`` returns it even if ``can_go_on`` has become False since."""

    def begin(self, request: Request) -> None:
        """Record that a request's load has begun. Called before vLLM adds the request to this queue."""
        self._requests[request] = None

    @property
    def landed(self) -> list[Request]:
        """Requests that may run now."""
        return [request for request in self._requests if self._may_go_on(request)]

    @property
    def landing(self) -> list[Request]:
        """Requests that may run now, and requests whose loads have not landed yet."""
        return [request for request in self._requests if not self.has_landed(request) or self._can_go_on(request)]

    def reason(self, zone: Zone) -> Preparation | None:
        """Returns "load" if a request of a zone is in this queue, else None."""
        return "load" if any(zone_of(request) is zone for request in self._requests) else None

    def add_request(self, request: Request) -> None:
        self._requests[request] = None

    def pop_request(self) -> Request:
        request = self._peeked if self._peeked in self._requests else self.peek_request()
        self._peeked = None
        del self._requests[request]
        self._going_on(request)
        self._has_left(request)
        return request

    def peek_request(self) -> Request:
        for request in self._requests:
            if self._may_go_on(request):
                self._peeked = request
                return request
        raise IndexError("no request whose load has landed can run")

    def prepend_request(self, request: Request) -> None:
        self.add_request(request)

    def prepend_requests(self, requests: RequestQueue) -> None:
        # The order does not matter, because `peek_request` skips requests whose loads have not landed.
        for request in requests:
            self.add_request(request)

    def remove_request(self, request: Request) -> None:
        if request is self._peeked:
            self._peeked = None
        if request in self._requests:
            del self._requests[request]
            self._has_left(request)

    def remove_requests(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.remove_request(request)

    def _may_go_on(self, request: Request) -> bool:
        return self.has_landed(request) and self._can_go_on(request)

    def __bool__(self) -> bool:
        """Whether any request can run now."""
        return any(map(self._may_go_on, self._requests))

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._requests))
