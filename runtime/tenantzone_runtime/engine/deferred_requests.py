"""Waiting requests that can't be admitted before their grammars are compiled or a tier has answered.

They are in no queue that a step looks at, so a step costs the same however many there are. The thread that compiles a
grammar notes the id of the request. Tiers note nothing: each step asks about a few of the requests that wait for them.
Requests that need not wait any longer go back into their queues before a step.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import chain
from typing import Final

from vllm.v1.request import Request

from tenantzone_runtime.engine.grammar_compilation import compilation_of
from tenantzone_runtime.engine.requests import zone_of
from tenantzone_runtime.zones.tenancy import Preparation
from tenantzone_runtime.zones.zone import Zone

MOST_AT_ONCE: Final = 256
"""Requests with grammars that one step puts back: each costs some microseconds, and thousands may arrive together."""
LOOKUPS_AT_ONCE: Final = 64
"""Requests for which one step checks whether their look-ups have ended: each costs a microsecond or two."""

_Lookups = OrderedDict[Request, None]


class DeferredRequests:
    """Requests outside the queues, by id, in order of arrival.

    Args:
        is_looking_up: returns whether a request waits for a tier to look up or load its chunks.
    """

    def __init__(self, is_looking_up: Callable[[Request], bool]) -> None:
        self._is_looking_up = is_looking_up
        self._requests: dict[str, Request] = {}
        self._arrived: deque[str] = deque()
        """Ids of requests whose grammars are compiled. Other threads append to it."""
        self._reasons: dict[Zone, dict[Request, Preparation]] = {}
        """What each of the requests waits for, by zone."""
        self._lookups: OrderedDict[Zone, _Lookups] = OrderedDict()
        """Requests that wait for tiers, by zone. The zones take turns, and so do the requests of each."""

    def defer(self, request: Request, zone: Zone) -> bool:
        """Keep a request of a zone until its grammar or a tier's answer arrives; False if it waits for neither."""
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
        """Returns what the first of a zone's requests here waits for; None: none is here."""
        return next(iter(self._reasons.get(zone, {}).values()), None)

    def _note_for(self, request_id: str) -> Callable[[Future[object]], None]:
        """Returns a callback that records a compiled grammar. It holds no request, as compiling may take hours."""
        arrived = self._arrived

        def note(_: Future[object]) -> None:
            arrived.append(request_id)

        return note

    def discard(self, request: Request) -> bool:
        """Forget a request; returns whether it was here."""
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
        """Take out requests that need not wait any longer, or whose grammars have failed.

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
            # An aborted request is gone, and another one may have come with its id.
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
