"""Lists and watches objects of one kind, and keeps them in a cache, like client-go's informers."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Generic

from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.api import explain
from tenantzone_operator.kube.rest import REQUEST_ERRORS, RestError
from tenantzone_operator.kube.store import InformerCache, T
from tenantzone_operator.logs import About

WATCH_SECONDS = (45, 60)
"""Minimum and maximum seconds until all objects are listed again, in case the watch has missed events."""
FIRST_PAUSE_SECONDS = 0.1
"""Initial backoff in seconds after a broken watch or failed listing."""
LAST_PAUSE_SECONDS = 5.0
"""Maximum backoff in seconds."""
LONGEST_ASKED_SECONDS = 30.0
"""Maximum pause in seconds that the informer accepts from a ``Retry-After`` header."""


class Informer(Generic[T]):
    """Keeps a cache of objects: lists them, watches them, and lists them again whenever the watch ends or breaks.

    Args:
        what: a description of the objects, for the log and the name of the task.
        list_objects: lists the objects and converts each with the function in its argument; returns the objects and
            the listing's resource version.
        watch: iterates over the events after a resource version (first argument) for some seconds (second argument).
        cache: receives the objects.
        changed: called when the objects have changed, and after the first listing.
        failed: called with each error, and with True if the previous error was the same.
        log: logs unexpected errors.
        listed: called after each listing, before ``changed``.
        forbidden_seconds: the minimum number of seconds until the retry of a forbidden request.
    """

    def __init__(
        self,
        what: str,
        list_objects: Callable[[Callable[[Body], T]], Awaitable[tuple[list[T], int]]],
        watch: Callable[[int, int], AsyncGenerator[dict[str, Any], None]],
        cache: InformerCache[T],
        changed: Callable[[], None],
        failed: Callable[[Exception, bool], None],
        log: About,
        listed: Callable[[], None] = lambda: None,
        forbidden_seconds: float = 0.0,
    ) -> None:
        self.cache = cache
        self.is_listed = False
        """Whether a listing has succeeded since the start."""
        self.listed_at = time.monotonic()
        """Monotonic time of the last successful listing, or of the start."""
        self.tried = asyncio.Event()
        """Set once a listing has succeeded or failed."""
        self.error: Exception | None = None
        """Last error of a listing or watch; None if the last listing succeeded and no error followed."""
        self._what = what
        self._list_objects = list_objects
        self._watch_objects = watch
        self._changed = changed
        self._failed = failed
        self._log = log
        self._listed = listed
        self._forbidden_seconds = forbidden_seconds
        self._last_words = ""
        """Text of the last error, to detect repeated errors; cleared after a watch that lasted long enough."""
        self._task = asyncio.create_task(self._run(), name=what)

    @property
    def complaint(self) -> str:
        """Why the objects can't be listed or watched; empty if there is no error."""
        return "" if self.error is None else explain(self.error)

    @property
    def is_forbidden(self) -> bool:
        """Whether the operator may not list or watch the objects."""
        return isinstance(self.error, RestError) and self.error.is_forbidden

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            began, asked = time.monotonic(), 0.0
            try:
                await self._watch(await self._list())
            except REQUEST_ERRORS as error:
                self._fail(error)
                asked = min((isinstance(error, RestError) and error.retry_after) or 0.0, LONGEST_ASKED_SECONDS)
                asked = max(asked, self._forbidden_seconds if self.is_forbidden else 0.0)
            except Exception as error:
                # Keep watching, because otherwise the objects would silently become outdated.
                self._log.exception("%s", self._what)
                self._fail(error)
            if time.monotonic() - began >= WATCH_SECONDS[0] / 2:
                # However the watch ended, it has lasted long enough to reset the backoff.
                pause, self._last_words = FIRST_PAUSE_SECONDS, ""
            await asyncio.sleep(max(pause, asked))
            pause = min(2 * pause, LAST_PAUSE_SECONDS)

    async def _list(self) -> int:
        """List the objects into the cache, and return the listing's resource version."""
        before = {found.meta.uid: found for found in self.cache}
        while True:
            found, version = await self._list_objects(self.cache.read_listed)
            if self.cache.relist(found, version):
                break
        is_first = not self.is_listed
        self.listed_at, self.is_listed, self.error = time.monotonic(), True, None
        self.tried.set()
        self._listed()
        if is_first or before != {found.meta.uid: found for found in self.cache}:
            self._changed()
        return version

    async def _watch(self, version: int) -> None:
        """Apply the events of one watch to the cache until the API server ends the watch as usual."""
        seconds = random.randint(*WATCH_SECONDS)
        async with aclosing(self._watch_objects(version, seconds)) as events:
            async for event in events:
                match event.get("type"):
                    case "ADDED" | "MODIFIED":
                        before, now = self.cache.put(event["object"])
                        if before != now:
                            self._changed()
                    case "DELETED":
                        if self.cache.remove(event["object"]) is not None:
                            self._changed()
                    case "ERROR":
                        # The API server can't continue from this resource version, usually with status 410: list again.
                        return

    def _fail(self, error: Exception) -> None:
        self.error = error
        words = explain(error)
        is_repeated, self._last_words = words == self._last_words, words
        self.tried.set()
        self._failed(error, is_repeated)
