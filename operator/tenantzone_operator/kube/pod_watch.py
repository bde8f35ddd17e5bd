"""Lists and watches the pods that one pool selects, so that no other pods are in memory."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import aclosing

import aiohttp

from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.resources import Pod, Pool, read_pod
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.kube.selectors import query
from tenantzone_operator.kube.store import InformerCache, Key, Store
from tenantzone_operator.logs import About

WATCH_SECONDS = (45, 60)
"""Range of the seconds after which all pods are listed again, in case the watch has missed events."""
FIRST_PAUSE_SECONDS = 0.1
"""Initial backoff in seconds after a broken watch or failed listing."""
LAST_PAUSE_SECONDS = 5.0
"""Maximum backoff in seconds."""
LONGEST_ASKED_SECONDS = 30.0
"""Maximum number of seconds that a ``Retry-After`` header of the API server may request."""
STALE_SECONDS = 150.0
"""Age of the last listing in seconds from which the pods are stale."""

_FORBIDDEN = 403
_TRANSIENT = (RestError, aiohttp.ClientError, TimeoutError)


async def list_selected(api: Api, pool: Pool) -> list[Pod]:
    """Returns the pods that a pool's selector matches now, including pods that belong to an older pool.

    Raises:
        RestError, aiohttp.ClientError, TimeoutError: see `Rest.call`.
    """
    wanted = query(pool.selector)
    if wanted is None:
        return []
    found, _ = await api.list_pods(pool.meta.namespace, wanted, read_pod)
    return found


class PodsUnknownError(Exception):
    """The pool's pods could not be listed; the operator retries. The message says why."""


class PodsForbiddenError(PodsUnknownError):
    """The operator may not list the pods."""


class PodWatch:
    """Keeps the pods that one pool selects in the store.

    Args:
        key: the pool's key.
        store: receives the pods, and contains them as long as they are watched.
        api: lists and watches pods.
        changed: called when the pods have changed.
        log: logs that the pods can't be watched.
    """

    def __init__(self, key: Key, store: Store, api: Api, changed: Callable[[], None], log: About) -> None:
        self._key = key
        self._store = store
        self._api = api
        self._changed = changed
        self._log = log
        self._selector: Body | None = None
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        """Set once a listing has succeeded or failed."""
        self._complaint = ""
        """Why the last listing failed."""
        self._is_forbidden = False
        """Whether the last listing failed because the operator may not list pods."""
        self._said = ""
        """The last logged error; empty again after a watch that lasts for a while."""
        self._is_listed = False
        self._listed_at = 0.0

    async def follow(self, pool: Pool | None) -> None:
        """Watch the pods of this pool from now on, and wait until they are listed; None stops the watch.

        Raises:
            PodsUnknownError: the pods can't be listed.
        """
        selector = pool.selector if pool is not None else None
        if selector != self._selector:
            self.stop()
            if selector is not None:
                self._start(selector)
        if selector is not None:
            await self._tried.wait()
            if not self._is_listed:
                error = PodsForbiddenError if self._is_forbidden else PodsUnknownError
                raise error(f"its pods can't be listed: {self._complaint}")

    def knows_pods_of(self, pool: Pool | None) -> bool:
        """Returns whether the store has the pods that the pool's current selector matches."""
        selector = pool.selector if pool is not None else None
        return selector == self._selector and (selector is None or self._is_listed)

    @property
    def is_followed(self) -> bool:
        """Whether the pool exists, so that its pods are watched or soon will be."""
        return self._selector is not None

    @property
    def is_stale(self) -> bool:
        """Whether the last listing of the pods is too old."""
        return self._task is not None and time.monotonic() - self._listed_at > STALE_SECONDS

    def check_age(self) -> None:
        """Check that the pods were listed recently enough.

        Raises:
            PodsUnknownError: the last listing is too old.
        """
        if self.is_stale:
            raise PodsUnknownError(f"its pods have not been listed for {STALE_SECONDS:.0f} s: {self._complaint}")

    def stop(self) -> None:
        """Stop watching pods, and remove them from the store."""
        if self._task is not None:
            self._task.cancel()
        self._store.pods.pop(self._key, None)
        self._task, self._selector = None, None

    def _start(self, selector: Body) -> None:
        self._selector, self._complaint = selector, ""
        self._is_listed, self._listed_at = False, time.monotonic()
        self._tried.clear()
        cache = self._store.pods[self._key] = InformerCache(read_pod)
        wanted = query(selector)
        if wanted is None:
            # No pod can have such labels.
            self._is_listed = True
            self._tried.set()
        else:
            self._task = asyncio.create_task(self._run(wanted, cache), name=f"pods of {'/'.join(self._key)}")

    async def _run(self, wanted: str, cache: InformerCache[Pod]) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            began, asked = time.monotonic(), 0.0
            try:
                await self._watch(wanted, cache, await self._list(wanted, cache))
            except _TRANSIENT as error:
                self._complain(explain(error), isinstance(error, RestError) and error.status == _FORBIDDEN)
                asked = (isinstance(error, RestError) and error.retry_after) or 0.0
            except Exception as error:
                # Keep watching, because otherwise the pool's pods would silently become outdated.
                self._log.exception("pods of %s/%s", *self._key)
                self._complain(explain(error))
            if time.monotonic() - began >= WATCH_SECONDS[0] / 2:
                # Reset the backoff, because the watch has lasted long enough, however it ended.
                pause, self._said = FIRST_PAUSE_SECONDS, ""
            await asyncio.sleep(max(pause, min(asked, LONGEST_ASKED_SECONDS)))
            pause = min(2 * pause, LAST_PAUSE_SECONDS)

    async def _list(self, wanted: str, cache: InformerCache[Pod]) -> int:
        """List the pods into the store, and return the listing's resource version."""
        before = {pod.meta.uid: pod for pod in cache}
        while True:
            found, version = await self._api.list_pods(self._key[0], wanted, cache.read_listed)
            if cache.relist(found, version):
                break
        self._listed_at, self._complaint = time.monotonic(), ""
        is_first, self._is_listed = not self._is_listed, True
        self._tried.set()
        if is_first or before != {pod.meta.uid: pod for pod in cache}:
            self._changed()
        return version

    async def _watch(self, wanted: str, cache: InformerCache[Pod], version: int) -> None:
        """Apply the events of one watch to the store until the API server ends the watch as usual."""
        seconds = random.randint(*WATCH_SECONDS)
        async with aclosing(self._api.watch_pods(self._key[0], wanted, version, seconds)) as events:
            async for event in events:
                match event.get("type"):
                    case "ADDED" | "MODIFIED":
                        before, now = cache.put(event["object"])
                        if before != now:
                            self._changed()
                    case "DELETED":
                        if cache.remove(event["object"]) is not None:
                            self._changed()
                    case "ERROR":
                        # The watch can't continue from this resource version, usually with status 410.
                        return

    def _complain(self, complaint: str, is_forbidden: bool = False) -> None:
        if complaint != self._said:
            self._log.warning("pods of %s/%s: %s; retrying", *self._key, complaint)
        self._complaint = self._said = complaint
        self._is_forbidden = is_forbidden
        self._tried.set()
