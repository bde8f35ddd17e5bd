"""The zones, pools and pods as they are, in memory: what the watches saw, put right by full listings.

Watches alone are not enough: an object that is deleted while a watch is broken leaves no event. So a listing replaces
everything, except what an event told about while the listing was under way, which is newer.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from tenantzone_operator.resources import Body, Meta, Pod, Pool, Zone, read_pod, read_pool, read_zone
from tenantzone_operator.selectors import matches

T = TypeVar("T", Zone, Pool, Pod)
Key = tuple[str, str]
"""Namespace and name."""


class Shelf(Generic[T]):
    """All objects of one kind."""

    def __init__(self, read: Callable[[Body], T]) -> None:
        self._read: Callable[[Body], T] = read
        self._objects: dict[Key, T] = {}
        self._touched: set[Key] | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def of(self, namespace: str) -> list[T]:
        return [found for (where, _), found in self._objects.items() if where == namespace]

    def put(self, body: Body) -> tuple[T | None, T]:
        """Take over one object, unless a newer version of it is known. Returns what was there, and what is now."""
        found = self._read(body)
        key = _key(found.meta)
        if self._touched is not None:
            self._touched.add(key)
        before = self._objects.get(key)
        if before is not None and before.meta.uid == found.meta.uid and before.meta.version > found.meta.version:
            return before, before
        self._objects[key] = found
        return before, found

    def update(self, body: Body) -> None:
        """Take over the answer to a write of ours, unless the object was deleted meanwhile."""
        meta = body["metadata"]
        known = self._objects.get((meta["namespace"], meta["name"]))
        if known is not None and known.meta.uid == meta["uid"]:
            self.put(body)

    def remove(self, body: Body) -> T | None:
        """Forget an object that was deleted, unless another one has its name already. Returns the forgotten one."""
        gone = self._read(body)
        key = _key(gone.meta)
        if self._touched is not None:
            self._touched.add(key)
        known = self._objects.get(key)
        if known is None or known.meta.uid != gone.meta.uid:
            return None
        return self._objects.pop(key)

    def begin_listing(self) -> None:
        """From now on, what events tell about is newer than the listing."""
        self._touched = set()

    def end_listing(self, bodies: Iterable[Body]) -> None:
        """Take over a listing that was asked for after `begin_listing`."""
        touched = self._touched or set()
        listed = {_key(found.meta): found for found in map(self._read, bodies)}
        kept = {key: found for key, found in self._objects.items() if key in touched}
        self._objects = {key: found for key, found in listed.items() if key not in touched} | kept
        self._touched = None


@dataclass(frozen=True, slots=True)
class View:
    """Everything that matters to one pool, at one moment."""

    pool: Pool | None
    zones: list[Zone]
    pods: list[Pod]

    @property
    def engines(self) -> list[Pod]:
        """The pods that serve requests now."""
        return [pod for pod in self.pods if pod.ready and pod.ip]


class Store:
    def __init__(self) -> None:
        self.zones: Shelf[Zone] = Shelf(read_zone)
        self.pools: Shelf[Pool] = Shelf(read_pool)
        self.pods: Shelf[Pod] = Shelf(read_pod)

    def view(self, key: Key) -> View:
        namespace, name = key
        pool = self.pools.get(key)
        if pool is not None and pool.meta.deleting:
            pool = None
        zones = [zone for zone in self.zones.of(namespace) if zone.pool == name and not zone.meta.deleting]
        return View(pool, zones, self._pods_of(pool) if pool is not None else [])

    def pool_keys(self, namespace: str | None = None) -> set[Key]:
        """Of all pools that exist or that a zone names."""
        exist = {_key(pool.meta) for pool in self.pools}
        named = {(zone.meta.namespace, zone.pool) for zone in self.zones}
        return {key for key in exist | named if namespace in (None, key[0])}

    def _pods_of(self, pool: Pool) -> list[Pod]:
        """The pods that the pool selects and that no older pool does: two configs for one engine can't both hold."""
        older = [
            other
            for other in self.pools.of(pool.meta.namespace)
            if other.meta.age_order < pool.meta.age_order and not other.meta.deleting
        ]
        return [
            pod
            for pod in self.pods.of(pool.meta.namespace)
            if not pod.meta.deleting
            and matches(pool.selector, pod.labels)
            and not any(matches(other.selector, pod.labels) for other in older)
        ]


def _key(meta: Meta) -> Key:
    return meta.namespace, meta.name
