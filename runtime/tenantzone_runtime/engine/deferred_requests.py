"""The waiting requests that can't be admitted before their grammars are compiled.

They are in no queue that a step looks at, so a step costs the same however many there are. The thread that compiles a
grammar notes the id of the request, and the next step puts the request back into its queue.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Final

from vllm.v1.request import Request

from tenantzone_runtime.engine.grammar_compilation import compilation_of

MOST_AT_ONCE: Final = 256
"""Requests that one step takes back: each costs it some microseconds, and thousands may arrive together."""


class DeferredRequests:
    """Requests outside of the queues, by id, in the order in which they came."""

    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}
        self._arrived: deque[str] = deque()
        """Ids of requests whose grammars are compiled. Other threads append to it."""

    def defer(self, request: Request) -> bool:
        """Keep a request until its grammar is compiled; returns False for a request that waits for no grammar."""
        grammar = compilation_of(request)
        if grammar is None:
            return False
        request_id: str = request.request_id
        self._requests[request_id] = request
        arrived = self._arrived

        def note(_: Future[object]) -> None:
            # Only the id: a grammar that takes hours must not keep a request that has ended.
            arrived.append(request_id)

        grammar.add_done_callback(note)
        return True

    def discard(self, request: Request) -> bool:
        """Forget a request; returns whether it was here."""
        if self._requests.get(request.request_id) is not request:
            return False
        del self._requests[request.request_id]
        return True

    def take_arrived(self) -> list[Request]:
        """Take out the requests whose grammars are compiled or have failed, at most ``MOST_AT_ONCE`` of them."""
        arrived: list[Request] = []
        while self._arrived and len(arrived) < MOST_AT_ONCE:
            request = self._requests.get(self._arrived.popleft())
            # An aborted request is gone, and another one may have come with its id.
            if request is not None and compilation_of(request) is None:
                del self._requests[request.request_id]
                arrived.append(request)
        return arrived

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())
