"""Queries the manager on behalf of requests, within a time budget. While the manager fails, no queries are sent."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import Final

from tenantzone_runtime.disk.breaker import Breaker
from tenantzone_runtime.shared.manager.answers import CacheLocations
from tenantzone_runtime.shared.manager.client import ManagerClient, ManagerError
from tenantzone_runtime.shared.manager.queries import Query
from tenantzone_runtime.shared.manager.threads import Threads
from tenantzone_runtime.shared.spaces import SharedZone
from tenantzone_runtime.zones.tiers.tier_counts import QuestionOutcome

logger = logging.getLogger(__name__)

_PROBE_SECONDS: Final = 5.0
"""Maximum seconds between two probes of a manager that fails."""


_SAME_TIME: Final = 0.002
"""Maximum difference in seconds between two deadlines that count as the same."""


Located = tuple[Sequence[bytes], CacheLocations]
"""Keys of chunks, and the manager's answer about them. The blocks of the answer have the order of the keys."""
Locate = Callable[[str, Sequence[bytes], float], Located]
"""Queries the locations of a prompt's chunks, given the instance's name, the prompt's keys and a timeout in seconds."""


def locate_prefix(client: ManagerClient) -> Locate:
    """Returns a `Locate` function for models in which each chunk needs all chunks before it in the prompt."""

    def locate(instance: str, keys: Sequence[bytes], seconds: float) -> Located:
        return keys, client.get_cache_location(instance, keys, seconds)

    return locate


class Asking:
    """Queries where the chunks of prompts are stored, on behalf of requests.

    Args:
        locate: queries the manager.
        threads: threads that wait for the manager.
        tell_gone: reports missing chunks to the manager. Otherwise, the manager would return their locations again.
    """

    def __init__(self, locate: Locate, threads: Threads, tell_gone: Callable[[], None]) -> None:
        self.breaker = Breaker(_PROBE_SECONDS, "The shared tier's calls to the KV-cache manager")
        self._counts: Counter[QuestionOutcome] = Counter()
        self._locate = locate
        self._threads = threads
        self._tell_gone = tell_gone

    @property
    def counts(self) -> Counter[QuestionOutcome]:
        """The number of queries by outcome, as a copy."""
        return self._counts.copy()

    def ask(self, zone: SharedZone, query: Query, now: float, budget: float, removals: Sequence[Event] = ()) -> None:
        """Query the locations of a request's whole prompt. While the manager fails, record that nothing was found.

        Args:
            zone: the zone of the request.
            query: the request's query.
            now: monotonic time in seconds.
            budget: maximum seconds until the answer.
            removals: reports of removed chunks that should reach the manager before the query. The query waits at most
                half of the budget for them.
        """
        if self.breaker.is_open:
            self._counts["skipped"] += 1
            query.skip(now)
            return
        query.begin(zone.space, now, budget)
        keys, instance = list(query.keys), zone.space.instance
        located: list[Located] = []

        def work() -> None:
            for removal in removals:
                removal.wait(now + budget / 2 - time.monotonic())
            left = now + budget - time.monotonic()
            if left <= 0:
                raise ManagerError("UNAVAILABLE", "the KV-cache manager could not be queried in time")
            located.append(self._locate(instance, keys, left))

        self._threads.ask(zone.tenant, work, partial(self._answered, query, located))

    def must_wait(self, zone: SharedZone, query: Query, now: float, budget: float) -> bool:
        """Query a prompt's locations, unless a valid answer exists. Returns whether the caller must wait for one."""
        if query.must_ask(now):
            self._tell_gone()
            self.ask(zone, query, now, budget, zone.space.removals)
        return self.is_pending(query, now)

    def is_pending(self, query: Query, now: float) -> bool:
        """Returns whether a query is not answered yet, but may still be answered in time."""
        if query.is_pending:
            self._threads.take_note()
        if query.is_late(now):
            self._counts["late"] += 1
            query.end()
            # Record the failure now. The thread that waits for the manager may be blocked for longer, and until the
            # failure is recorded, each further request waits as long as this one.
            self.heard(ManagerError("UNAVAILABLE", "the KV-cache manager did not answer a query in time"))
        return query.is_pending

    def heard(self, error: Exception | None) -> None:
        """Record whether the manager works. ``error`` is the error of a call, or None if the call succeeded."""
        if not isinstance(error, ManagerError) or not error.is_failure:
            self.breaker.succeeded()
            return
        if not self.breaker.is_open:
            logger.warning("A call of the shared tier to the KV-cache manager failed: %s", error)
        # Open the breaker at once if access is denied, because a retry would be denied, too.
        is_shut_out = error.code in ("UNAUTHENTICATED", "PERMISSION_DENIED")
        self.breaker.failed(time.monotonic(), str(error), at_once=is_shut_out)

    def _answered(self, query: Query, located: Sequence[Located], error: Exception | None) -> None:
        if not query.is_pending:
            # The query was already counted as late, and a late answer does not show that the manager works.
            return
        self.heard(error)
        if error is None or _is_unknown(error):
            self._counts["answered"] += 1
            query.answer(*(located[0] if located else ((), CacheLocations())))
        else:
            # The thread that waits for the manager has the same deadline, and may have timed out slightly earlier.
            is_late = query.is_late(time.monotonic() + _SAME_TIME)
            self._counts["late" if is_late else "failed"] += 1
            query.end()


def _is_unknown(error: Exception) -> bool:
    """Returns whether an error reports that the instance does not exist yet, because no engine has stored chunks."""
    return isinstance(error, ManagerError) and error.code == "NOT_FOUND"
