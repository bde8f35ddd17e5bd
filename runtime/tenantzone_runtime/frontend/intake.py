"""Reads and checks request bodies, with limits on their size and cost; large bodies are checked in other threads."""

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
"""Maximum size of a body that is checked on the event loop, because switching to a thread would take longer."""

_WORKERS = 2
"""Number of threads that check the bodies of all tenants."""

_PATTERN_PART = 8
"""Divisor of ``max_grammar_bytes`` for patterns and grammars, whose cost grows with the square of their size."""

Remake = Callable[[bytes, dict[str, Any], int], bytes]
"""Makes the body to pass on to vLLM from the received body, its parsed JSON and its number of answers."""


class Intake:
    """Reads and checks the bodies of requests.

    Args:
        bounds: the limits of requests.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        # The workers check bodies in FIFO order, with at most one body per tenant in the queue, which makes this a
        # round-robin over tenants. More threads would only slow down the event loop, because all share the GIL. With a
        # single thread, all requests would wait for the body that takes longest.
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
            declared_length: the ``Content-Length`` header, if the request has one.
            route: the request's route.
            held: the request's entry in the limits of its tenant.
            remake: makes the body to pass on; may be called on any thread.
            limit: the zone's maximum body size in bytes, which applies if it is below the general limit; None if the
                zone has no limit.

        Raises:
            Refusal: the body exceeds a limit, or is not a JSON object, or ``remake`` refuses it.
            BodyCheckFailed: a check has raised an unexpected exception.
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
