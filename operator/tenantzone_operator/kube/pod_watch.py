"""Lists and watches the pods that one pool selects, so that the operator keeps no other pods in memory."""

import time
from collections.abc import Callable
from functools import partial

from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.informer import Informer
from tenantzone_operator.kube.resources import Pod, Pool, read_pod
from tenantzone_operator.kube.selectors import query
from tenantzone_operator.kube.store import InformerCache, Key, Store
from tenantzone_operator.logs import About

STALE_SECONDS = 150.0
"""Maximum age of the last listing in seconds, after which the pods count as stale."""


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
        store: receives the pods, and loses them when the watch stops.
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
        self._informer: Informer[Pod] | None = None
        """Informer of the pods that the selector matches; None without a selector, or if no pod can match it."""

    async def follow(self, pool: Pool | None) -> None:
        """Watch this pool's pods, and wait for the first listing. Without a pool, stop the watch and remove the pods.

        Raises:
            PodsUnknownError: the pods can't be listed.
        """
        selector = pool.selector if pool is not None else None
        if selector != self._selector:
            self.stop()
            if selector is not None:
                self._start(selector)
        if (informer := self._informer) is not None:
            await informer.tried.wait()
            if not informer.is_listed:
                error = PodsForbiddenError if informer.is_forbidden else PodsUnknownError
                raise error(f"the pool's pods can't be listed: {informer.complaint}")

    def knows_pods_of(self, pool: Pool | None) -> bool:
        """Returns whether the store has the pods that the pool's current selector matches."""
        selector = pool.selector if pool is not None else None
        return selector == self._selector and (self._informer is None or self._informer.is_listed)

    @property
    def is_followed(self) -> bool:
        """Whether `follow` was last called with a pool, and `stop` has not been called since."""
        return self._selector is not None

    @property
    def is_stale(self) -> bool:
        """Whether the last listing of the pods is older than ``STALE_SECONDS``."""
        return self._informer is not None and time.monotonic() - self._informer.listed_at > STALE_SECONDS

    def check_age(self) -> None:
        """Check that the last listing of the pods is recent enough.

        Raises:
            PodsUnknownError: the last listing is older than ``STALE_SECONDS``.
        """
        if self._informer is not None and self.is_stale:
            complaint = self._informer.complaint
            raise PodsUnknownError(f"the pool's pods have not been listed for {STALE_SECONDS:.0f} s: {complaint}")

    def stop(self) -> None:
        """Stop watching pods, and remove them from the store."""
        if self._informer is not None:
            self._informer.stop()
        self._store.pods.pop(self._key, None)
        self._informer, self._selector = None, None

    def _start(self, selector: Body) -> None:
        self._selector = selector
        cache = self._store.pods[self._key] = InformerCache(read_pod)
        wanted, namespace = query(selector), self._key[0]
        if wanted is not None:
            self._informer = Informer(
                f"pods of {'/'.join(self._key)}",
                partial(self._api.list_pods, namespace, wanted),
                partial(self._api.watch_pods, namespace, wanted),
                cache,
                self._changed,
                self._fail,
                self._log,
            )

    def _fail(self, error: Exception, is_repeated: bool) -> None:
        if not is_repeated:
            self._log.warning("pods of %s/%s: %s; retrying", *self._key, explain(error))
