"""Reads request bodies, and checks their size and cost. Large bodies are checked in other threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tenantzone_runtime.frontend.binding import parse_body
from tenantzone_runtime.frontend.body.forms import check_pattern_sizes
from tenantzone_runtime.frontend.body.grammars import check_grammars
from tenantzone_runtime.frontend.body.limits import read_body
from tenantzone_runtime.frontend.body.media_options import check_media_options
from tenantzone_runtime.frontend.body.prompts import check_prompts
from tenantzone_runtime.frontend.body.sampling import check_logprobs, check_sampling
from tenantzone_runtime.frontend.body.shape import check_count, check_depth, check_kinds, check_text, check_texts
from tenantzone_runtime.frontend.in_flight import Held
from tenantzone_runtime.frontend.responses.answers import Receive, Refusal
from tenantzone_runtime.frontend.responses.failures import BodyCheckFailed
from tenantzone_runtime.frontend.routes import Route
from tenantzone_runtime.settings import Bounds

_SMALL_BYTES = 16 * 2**10
"""Maximum size in bytes of a body that is checked on the event loop, because switching to a thread takes longer."""

_WORKERS = 2
"""Number of threads that check the bodies of all tenants."""

_PATTERN_PART = 8
"""``max_grammar_bytes`` divided by this number is the limit for patterns and grammars. It is lower than the limit for
schemas, because the cost of patterns and grammars grows with the square of their size."""

Remake = Callable[[bytes, dict[str, Any], int], bytes]
"""Returns the body to pass on to vLLM, given the received body, the parsed body and the number of answers."""


class Intake:
    """Reads and checks the bodies of requests.

    Args:
        bounds: the settings with the limits of requests.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        # The workers check bodies in FIFO order. Because each tenant has at most one body in the queue, tenants take
        # turns. More threads would only slow down the event loop, because all threads share the GIL. With a single
        # thread, all requests would wait for the body that takes longest.
        self._workers = ThreadPoolExecutor(_WORKERS, "tenantzone-frontend")

    async def take(
        self,
        receive: Receive,
        declared_length: bytes | None,
        route: Route,
        held: Held,
        remake: Remake,
        limit: int | None = None,
    ) -> bytes:
        """Read and check a request's body, wait until the request may be prepared, and return the body to pass on.

        Args:
            receive: receives the request's ASGI messages.
            declared_length: the ``Content-Length`` header, or None.
            route: the request's route.
            held: the request's part of the in-flight quota.
            remake: makes the body to pass on. It may be called on any thread.
            limit: the zone's maximum body size in bytes; None if the zone has no limit. The route's general limit also
                applies.

        Raises:
            Refusal: the body exceeds a limit or is not a JSON object, or ``remake`` refuses the body.
            BodyCheckFailed: a check raised an unexpected exception.
            ClientDisconnected: the client disconnected before the body was complete.
        """
        of_any = self._bounds.max_body_bytes if route.brings_media else self._bounds.max_text_bytes
        body = await read_body(receive, declared_length, min(of_any, limit or of_any), held.add)
        if len(body) <= _SMALL_BYTES:
            prompts, made = self._checked(body, route, remake)
        else:
            async with held.turn:
                prompts, made = await asyncio.get_running_loop().run_in_executor(
                    self._workers, self._checked, body, route, remake
                )
        held.count(prompts - 1)
        held.media.has_several_conversations = prompts > 1
        await held.make_ready()
        return made

    def _checked(self, body: bytes, route: Route, remake: Remake) -> tuple[int, bytes]:
        try:
            return self._work(body, route, remake)
        except Refusal:
            raise
        except Exception as error:
            raise BodyCheckFailed from error

    def _work(self, body: bytes, route: Route, remake: Remake) -> tuple[int, bytes]:
        """Returns the number of engine requests that vLLM makes from a body, and the body to pass on."""
        check_count(body)
        parsed = parse_body(body)
        check_depth(body, parsed)
        check_texts(body, parsed)
        check_kinds(parsed)
        if route.brings_media:
            check_text(parsed, len(body), self._bounds.max_text_bytes)
        check_grammars(parsed, self._bounds.max_grammar_bytes)
        check_pattern_sizes(parsed, self._bounds.max_grammar_bytes // _PATTERN_PART)
        check_sampling(parsed)
        check_media_options(parsed, self._bounds)
        answers = check_prompts(parsed, self._bounds.max_prompts)
        check_logprobs(parsed, answers, route.path)
        return answers, remake(body, parsed, answers)
