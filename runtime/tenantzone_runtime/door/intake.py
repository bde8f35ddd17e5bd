"""Takes in the bodies of requests: whole, within bounds, and worked on beside the event loop where they are large."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tenantzone_runtime.door.answers import Receive, Refusal
from tenantzone_runtime.door.binding import parse_body
from tenantzone_runtime.door.failures import BodyCheckFailed
from tenantzone_runtime.door.forms import check_pattern_sizes
from tenantzone_runtime.door.grammars import check_grammars
from tenantzone_runtime.door.holdings import Held
from tenantzone_runtime.door.limits import read_body
from tenantzone_runtime.door.media_options import check_media_options
from tenantzone_runtime.door.prompts import check_prompts
from tenantzone_runtime.door.routes import Route
from tenantzone_runtime.door.sampling import check_logprobs, check_sampling
from tenantzone_runtime.door.shape import check_count, check_depth, check_kinds, check_text, check_texts
from tenantzone_runtime.settings import Bounds

_SMALL_BYTES = 16 * 2**10
"""Up to this a body costs less than the way to another thread and back."""

_WORKERS = 2
"""Threads that check the bodies of all tenants."""

_PATTERN_PART = 8
"""Patterns and grammars may be so much smaller than what else says how an answer is to look."""

Remake = Callable[[bytes, dict[str, Any], int], bytes]
"""Makes the body that goes on of the one that came, of what that holds, and of how many answers it comes to."""


class Intake:
    """Takes in the bodies of requests.

    Args:
        bounds: of what tenants send.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        # Bodies are checked in the order in which they arrive here, and a tenant has at most one among them: so the
        # workers serve tenants in turn. Threads of Python's share a processor, so that more would only slow the event
        # loop down. With one, everyone would wait for the tenant whose body takes longest.
        self._workers = ThreadPoolExecutor(_WORKERS, "tenantzone-door")

    async def take(
        self,
        receive: Receive,
        declared_length: bytes | None,
        route: Route,
        held: Held,
        remake: Remake,
        limit: int | None = None,
    ) -> bytes:
        """Read a request's body, and make the one that goes on, once it is its turn to be made ready for the engine.

        Args:
            receive: the request's messages.
            declared_length: its ``Content-Length`` header, if it has one.
            route: of the request.
            held: the request, as it counts for its tenant.
            remake: makes the body that goes on, on whatever thread.
            limit: bytes that a body of this zone may have, if that is less than any may; None: it is not.

        Raises:
            Refusal: the body is not within bounds, or holds no object in JSON, or ``remake`` refuses it.
            BodyCheckFailed: a check has failed with another exception.
            ClientDisconnected: it never came to its end.
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
        """How many requests of the engine a body comes to, and the body that goes on."""
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
