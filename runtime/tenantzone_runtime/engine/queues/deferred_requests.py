"""Waiting requests that can't be admitted before their grammars are compiled or a tier has answered.

Steps do not consider these requests, so the cost of a step does not depend on their number. A thread that has compiled
a grammar records the id of the request. Tiers report no end of a wait, so each step polls a few of the requests that
wait for tiers. Before a step, requests whose wait is over return to their zones' queues.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import chain
from typing import Final

from vllm.v1.request import Request

from tenantzone_runtime.engine.blocks.requests import zone_of
from tenantzone_runtime.engine.grammars.grammar_compilation import compilation_of
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tenancy import Preparation

MOST_AT_ONCE: Final = 256
"""Maximum number of requests with compiled grammars that return to queues per step. Each takes a few microseconds."""
LOOKUPS_AT_ONCE: Final = 64
"""Maximum number of requests per step whose tier look-ups are polled. Each takes a microsecond or two."""

_Lookups = OrderedDict[Request, None]


class DeferredRequests:
    """Waiting requests outside the zones' queues, in order of arrival.

    Args:
        is_looking_up: returns whether a request waits for a tier to look up or load its chunks.
    """

    def __init__(self, is_looking_up: Callable[[Request], bool]) -> None:
        self._is_looking_up = is_looking_up
        self._requests: dict[str, Request] = {}
        self._arrived: deque[str] = deque()
        """Ids of requests whose grammars are compiled. The compiling threads append to this queue."""
        self._reasons: dict[Zone, dict[Request, Preparation]] = {}
        """Deferred requests by zone, each with the preparation that it waits for."""
        self._lookups: OrderedDict[Zone, _Lookups] = OrderedDict()
        """Requests that wait for tiers, by zone. Polling is round-robin among zones, and within each zone."""

    def defer(self, request: Request, zone: Zone) -> bool:
        """Defer a request that waits for its grammar or for a tier. Returns False if it waits for neither."""
        grammar = compilation_of(request)
        if grammar is not None:
            self._keep(request, zone, "grammar")
            grammar.add_done_callback(self._note_for(request.request_id))
        elif self._is_looking_up(request):
            self._keep(request, zone, "load")
            self._lookups.setdefault(zone, OrderedDict())[request] = None
        else:
            return False
        return True

    def _keep(self, request: Request, zone: Zone, reason: Preparation) -> None:
        self._requests[request.request_id] = request
        self._reasons.setdefault(zone, {})[request] = reason

    def reason(self, zone: Zone) -> Preparation | None:
        """Returns the preparation for which a zone's first deferred request waits, or None if none is deferred."""
        return next(iter(self._reasons.get(zone, {}).values()), None)

    def _note_for(self, request_id: str) -> Callable[[Future[object]], None]:
        """Returns a callback that records the end of a compilation.

        The callback has no reference to the request, because compiling may take hours, and an aborted request must be
        freed meanwhile.
        """
        arrived = self._arrived

        def note(_: Future[object]) -> None:
            arrived.append(request_id)

        return note

    def discard(self, request: Request) -> bool:
        """Stop deferring a request. Returns whether the request was deferred."""
        request_id: str = request.request_id
        if self._requests.get(request_id) is not request:
            return False
        del self._requests[request_id]
        zone = zone_of(request)
        if zone is None:
            return True
        reasons = self._reasons[zone]
        del reasons[request]
        if not reasons:
            del self._reasons[zone]
        if zone in self._lookups:
            lookups = self._lookups[zone]
            lookups.pop(request, None)
            if not lookups:
                del self._lookups[zone]
        return True

    def take_arrived(self) -> list[Request]:
        """Remove and return requests whose wait is over, including requests whose grammars can't be compiled.

        Requests beyond ``MOST_AT_ONCE`` and ``LOOKUPS_AT_ONCE`` are left for the next call.
        """
        arrived = []
        for request in chain(self._compiled(), self._looked_up()):
            self.discard(request)
            arrived.append(request)
        return arrived

    def _compiled(self) -> Iterator[Request]:
        for _ in range(min(len(self._arrived), MOST_AT_ONCE)):
            request = self._requests.get(self._arrived.popleft())
            # The request may have been aborted, and another request may have arrived with the same id.
            if request is not None and compilation_of(request) is None:
                yield request

    def _looked_up(self) -> Iterator[Request]:
        waiting = sum(map(len, self._lookups.values()))
        for _ in range(min(waiting, LOOKUPS_AT_ONCE)):
            zone, lookups = next(iter(self._lookups.items()))
            request = next(iter(lookups))
            self._lookups.move_to_end(zone)
            lookups.move_to_end(request)
            if not self._is_looking_up(request):
                yield request

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())
