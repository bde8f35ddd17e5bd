"""Reads and checks request bodies within bounds; large ones are processed outside the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tenantzone_runtime.frontend.answers import Receive, Refusal
from tenantzone_runtime.frontend.binding import parse_body
from tenantzone_runtime.frontend.failures import BodyCheckFailed
from tenantzone_runtime.frontend.forms import check_pattern_sizes
from tenantzone_runtime.frontend.grammars import check_grammars
from tenantzone_runtime.frontend.in_flight import Held
from tenantzone_runtime.frontend.limits import read_body
from tenantzone_runtime.frontend.media_options import check_media_options
from tenantzone_runtime.frontend.prompts import check_prompts
from tenantzone_runtime.frontend.routes import Route
from tenantzone_runtime.frontend.sampling import check_logprobs, check_sampling
from tenantzone_runtime.frontend.shape import check_count, check_depth, check_kinds, check_text, check_texts
from tenantzone_runtime.settings import Bounds

_SMALL_BYTES = 16 * 2**10
"""A body up to this size costs less than a switch to another thread and back."""

_WORKERS = 2
"""Threads that check the bodies of all tenants."""

_PATTERN_PART = 8
"""The divisor of the size limit for patterns and grammars, relative to that of an answer's format."""

Remake = Callable[[bytes, dict[str, Any], int], bytes]
"""Makes the body that is passed on from the received one, its parsed contents, and its number of answers."""


class Intake:
    """Reads and checks the bodies of requests.

    Args:
        bounds: of requests.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        # Bodies are checked in the order of arrival here, and a tenant has at most one among them: so the workers serve
        # tenants in turn. Python's threads share a processor, so more would only slow the event loop down. With one,
        # every request would wait for the tenant whose body takes longest.
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
        """Read a request's body, and return the one to pass on, once the request may be prepared for the engine.

        Args:
            receive: the request's messages.
            declared_length: its ``Content-Length`` header, if it has one.
            route: of the request.
            held: the request, as it counts for its tenant.
            remake: makes the body to pass on; called on any thread.
            limit: bytes of a body in this zone, if that is less than the general limit; None: no own limit.

        Raises:
            Refusal: the body is not within bounds, or is not a JSON object, or ``remake`` refuses it.
            BodyCheckFailed: a check has failed with another exception.
            ClientDisconnected: the body did not arrive completely.
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
        """Returns the number of engine requests that a body makes, and the body to pass on."""
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
