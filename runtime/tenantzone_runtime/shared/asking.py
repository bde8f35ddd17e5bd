"""Requests' questions to the manager, within their budget; none is asked while it fails."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import Final

from tenantzone_runtime.disk.breaker import Breaker
from tenantzone_runtime.shared.answers import CacheLocations
from tenantzone_runtime.shared.client import ManagerClient, ManagerError
from tenantzone_runtime.shared.queries import Query
from tenantzone_runtime.shared.spaces import SharedZone
from tenantzone_runtime.shared.threads import Threads
from tenantzone_runtime.zones.tier_counts import QuestionOutcome

logger = logging.getLogger(__name__)

_PROBE_SECONDS: Final = 5.0
"""At most, between two tries of a manager that fails."""


_SAME_TIME: Final = 0.002
"""Seconds in which two clocks' ends are the same end."""


Told = tuple[Sequence[bytes], CacheLocations]
"""Keys of chunks, and what the manager has said of them, in the same order."""
Locate = Callable[[str, Sequence[bytes], float], Told]
"""Asks about an instance's prompt, by the keys of its blocks, within so many seconds."""


def locate_prefix(client: ManagerClient) -> Locate:
    """Asks where the chunks of a prompt are of which each follows the one before it."""

    def locate(instance: str, keys: Sequence[bytes], seconds: float) -> Told:
        return keys, client.get_cache_location(instance, keys, seconds)

    return locate


class Asking:
    """Asks where prompts can be read, one question for each request.

    Args:
        locate: asks the manager.
        threads: that wait for it.
        tell_gone: has the manager told what is known to be gone, of which it would tell the next request once more.
    """

    def __init__(self, locate: Locate, threads: Threads, tell_gone: Callable[[], None]) -> None:
        self.breaker = Breaker(longest_pause=_PROBE_SECONDS)
        self._counts: Counter[QuestionOutcome] = Counter()
        self._locate = locate
        self._threads = threads
        self._tell_gone = tell_gone

    @property
    def counts(self) -> Counter[QuestionOutcome]:
        """What became of all questions; a copy that nobody changes."""
        return self._counts.copy()

    def ask(self, zone: SharedZone, query: Query, now: float, budget: float, removals: Sequence[Event] = ()) -> None:
        """Ask about a request's whole prompt, unless the manager fails.

        Args:
            zone: whose request it is.
            query: the request's own.
            now: on the monotonic clock.
            budget: seconds that the answer may take.
            removals: that the manager is to hear of before, if they take no more than half of that.
        """
        if self.breaker.is_open:
            self._counts["skipped"] += 1
            query.skip(now)
            return
        query.begin(zone.space, now, budget)
        keys, instance = list(query.keys), zone.space.instance
        told: list[Told] = []

        def work() -> None:
            for removal in removals:
                removal.wait(now + budget / 2 - time.monotonic())
            left = now + budget - time.monotonic()
            if left <= 0:
                raise ManagerError("UNAVAILABLE", "the KV-cache manager was not asked in time")
            told.append(self._locate(instance, keys, left))

        self._threads.ask(zone.tenant, work, partial(self._answered, query, told))

    def must_wait(self, zone: SharedZone, query: Query, now: float, budget: float) -> bool:
        """Ask about a request's prompt if nothing is known that may be believed; returns whether to wait for it."""
        if query.must_ask(now):
            self._tell_gone()
            self.ask(zone, query, now, budget, zone.space.removals)
        return self.is_pending(query, now)

    def is_pending(self, query: Query, now: float) -> bool:
        """Whether a question may still be answered in time."""
        if query.is_pending:
            self._threads.take_note()
        if query.is_late(now):
            self._counts["late"] += 1
            query.end()
            # Whoever should have said so may be held up itself, and each further request would wait as long.
            self.heard(ManagerError("UNAVAILABLE", "the KV-cache manager did not answer a question in time"))
        return query.is_pending

    def heard(self, error: Exception | None) -> None:
        """Note of any call whether the manager is well."""
        if not isinstance(error, ManagerError) or not error.is_failure:
            self.breaker.succeeded()
            return
        if not self.breaker.is_open:
            logger.warning("The shared tier could not ask: %s", error)
        # Whoever is not let in would not be the next time.
        is_shut_out = error.code in ("UNAUTHENTICATED", "PERMISSION_DENIED")
        self.breaker.failed(time.monotonic(), str(error), at_once=is_shut_out)

    def _answered(self, query: Query, told: Sequence[Told], error: Exception | None) -> None:
        if not query.is_pending:
            # It was late, and counted as that: an answer that nobody waited for makes no manager well.
            return
        self.heard(error)
        if error is None or _is_unknown(error):
            self._counts["answered"] += 1
            query.answer(*(told[0] if told else ((), CacheLocations())))
        else:
            # Its thread gives up when the budget is spent, and may be the first to know.
            is_late = query.is_late(time.monotonic() + _SAME_TIME)
            self._counts["late" if is_late else "failed"] += 1
            query.end()


def _is_unknown(error: Exception) -> bool:
    """Whether the manager does not know the instance: no engine has stored anything."""
    return isinstance(error, ManagerError) and error.code == "NOT_FOUND"
