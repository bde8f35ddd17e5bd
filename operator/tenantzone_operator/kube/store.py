"""Stores the current zones, pools and pods in memory, from watches and full listings.

Watches alone are not enough, because no event reports an object that is deleted while a watch is broken. So each
listing corrects the store. Events may arrive late, twice or out of order, so the store compares resource versions: of
two objects of a kind, the object with the higher version is newer. Kubernetes guarantees this order since 1.35, and
the revisions of etcd have always had it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.resources import Meta, Pod, Pool, Zone, read_pool, read_zone, share_config
from tenantzone_operator.kube.selectors import matches

Key = tuple[str, str]
"""Namespace and name of an object."""


class HasMeta(Protocol):
    """An object that can be in an informer cache."""

    @property
    def meta(self) -> Meta: ...


T = TypeVar("T", bound=HasMeta)


class InformerCache(Generic[T]):
    """A cache of all objects of one kind, filled from listings and events.

    Args:
        read: converts the API server's JSON to an object.
        share: called with a new and the known object; returns the new object, reusing equal parts of the known one.
    """

    def __init__(self, read: Callable[[Body], T], share: Callable[[T, T], T] = lambda found, known: found) -> None:
        self.read: Callable[[Body], T] = read
        self._share: Callable[[T, T], T] = share
        self._objects: dict[Key, T] = {}
        self._doubtful: dict[Key, T] = {}
        """Objects that were in the cache when the API server's data was rolled back.

        They stay visible until the next listing, but their versions are not compared with those of new objects,
        because the same version may now mean different content.
        """
        self._gone: dict[str, int] = {}
        """Resource versions at which objects were deleted since the last listing, by uid.

        An event with a higher version means that the object has returned, because its labels match again.
        """
        self._listed_at = 0

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def of(self, namespace: str) -> list[T]:
        return [found for (where, _), found in self._objects.items() if where == namespace]

    def read_listed(self, body: Body) -> T:
        """Returns the object in the API server's JSON, or the cached object if that has the same version.

        Parsing thousands of unchanged objects would block the event loop.
        """
        metadata = body["metadata"]
        known = self._trusted((metadata["namespace"], metadata["name"]))
        is_known = (
            known is not None
            and known.meta.uid == metadata["uid"]
            and known.meta.version == int(metadata["resourceVersion"])
        )
        return known if known is not None and is_known else self.read(body)

    def put(self, body: Body) -> tuple[T | None, T | None]:
        """Store an object unless the cache has a newer version. Returns the objects cached before and afterwards."""
        found = self.read_listed(body)
        key = _key(found.meta)
        before, trusted = self._objects.get(key), self._trusted(key)
        # If an object is missing in the last listing and its version is not newer, it was deleted before that listing.
        known = trusted.meta.version if trusted is not None else self._listed_at
        if found.meta.version < known or (trusted is None and found.meta.version == known) or self._is_gone(found):
            return before, before
        found = self._objects[key] = self._shared(found)
        return before, found

    def update(self, body: Body) -> None:
        """Store an object from the response to a write of the operator, unless it was deleted in the meantime."""
        meta = body["metadata"]
        known = self._objects.get((meta["namespace"], meta["name"]))
        if known is not None and known.meta.uid == meta["uid"]:
            self.put(body)

    def remove(self, body: Body) -> T | None:
        """Remove the object of a deletion event, and return it.

        Removes nothing, and returns None, if the cache has a newer version, or no object with the same name and uid.
        """
        gone = self.read(body)
        key = _key(gone.meta)
        if gone.meta.version > self._listed_at:
            self._gone[gone.meta.uid] = max(gone.meta.version, self._gone.get(gone.meta.uid, 0))
        known, trusted = self._objects.get(key), self._trusted(key)
        if known is None or known.meta.uid != gone.meta.uid:
            return None
        if trusted is not None and trusted.meta.version > gone.meta.version:
            return None
        return self._objects.pop(key)

    def relist(self, found: Iterable[T], version: int) -> bool:
        """Store a listing of all objects of the kind.

        Args:
            found: all objects, as `read_listed` returns them.
            version: the listing's resource version; events may already have delivered newer objects.

        Returns:
            Whether the listing is valid. If not, the API server's data was rolled back, for example to a backup, so the
            known objects are doubtful, and the caller must list again.
        """
        if version < self._listed_at:
            self._doubtful, self._gone, self._listed_at = dict(self._objects), {}, 0
            return False
        trusted = {key: known for key in self._objects if (known := self._trusted(key)) is not None}
        newer = {key: known for key, known in trusted.items() if known.meta.version > version}
        listed = {_key(each.meta): self._shared(each) for each in found if not self._is_gone(each)}
        self._objects, self._doubtful = listed | newer, {}
        self._gone = {uid: when for uid, when in self._gone.items() if when > version}
        self._listed_at = version
        return True

    def _trusted(self, key: Key) -> T | None:
        known = self._objects.get(key)
        return None if known is self._doubtful.get(key) else known

    def _shared(self, found: T) -> T:
        known = self._objects.get(_key(found.meta))
        return found if known is None or known is found else self._share(found, known)

    def _is_gone(self, found: T) -> bool:
        return found.meta.version <= self._gone.get(found.meta.uid, -1)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Pods that both a pool and another pool of the same namespace select."""

    pool: str
    """Name of the other pool."""
    has_pods: bool
    """Whether the pods belong to the other pool, because the other pool is the oldest pool that selects them."""
    pods: tuple[str, ...]
    """Names of the pods, sorted."""


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot of all objects that matter to one pool."""

    pool: Pool | None
    zones: list[Zone]
    """The zones to enforce."""
    leaving: list[Zone]
    """Zones whose deletion waits for a finalizer."""
    pods: list[Pod]
    leaving_pool: Pool | None = None
    """The pool if its deletion waits for a finalizer; `pool` is None in that case."""
    overlaps: tuple[Overlap, ...] = ()
    """Overlaps with other pools that select some of the same pods."""

    @property
    def status_pool(self) -> Pool | None:
        """The pool whose status the operator writes, even while it is being deleted; None if it does not exist."""
        return self.pool or self.leaving_pool

    @property
    def is_empty(self) -> bool:
        """Whether the pool and all of its zones are gone, so that no status remains to be written."""
        return self.status_pool is None and not self.zones and not self.leaving

    @property
    def uids(self) -> set[str]:
        """UIDs of the pool and its zones."""
        zones = {zone.meta.uid for zone in (*self.zones, *self.leaving)}
        return zones | ({self.status_pool.meta.uid} if self.status_pool is not None else set())

    @property
    def engines(self) -> list[Pod]:
        """Pods that serve requests now."""
        return [pod for pod in self.pods if pod.ready and pod.ip]


class Store:
    """The zones and pools of the cluster, and the pods of each pool.

    Args:
        has_manager: whether the operator has a KV-cache manager.
    """

    def __init__(self, *, has_manager: bool = False) -> None:
        self.zones: InformerCache[Zone] = InformerCache(read_zone, share_config)
        self.pools: InformerCache[Pool] = InformerCache(partial(read_pool, has_manager=has_manager))
        self.pods: dict[Key, InformerCache[Pod]] = {}
        """Pods of each watched pool. Just after a change of the selector, these are the previous selector's pods."""

    def view(self, key: Key) -> View:
        namespace, name = key
        found = self.pools.get(key)
        is_leaving = found is not None and found.meta.deleting
        pool, leaving_pool = (None, found) if is_leaving else (found, None)
        named = [zone for zone in self.zones.of(namespace) if zone.pool == name]
        zones = [zone for zone in named if not zone.meta.deleting]
        leaving = [zone for zone in named if zone.meta.deleting]
        selected = list(self.pods.get(key, ()))
        pods = self.own_pods(pool, selected) if pool is not None else []
        overlaps = self._overlaps(pool, selected) if pool is not None else ()
        return View(pool, zones, leaving, pods, leaving_pool, overlaps)

    def pool_keys(self, namespace: str | None = None) -> set[Key]:
        """Returns the keys of all pools that exist or that a zone names, in one namespace or all."""
        exist = {_key(pool.meta) for pool in self.pools}
        named = {(zone.meta.namespace, zone.pool) for zone in self.zones}
        return {key for key in exist | named if namespace in (None, key[0])}

    def own_pods(self, pool: Pool, pods: Iterable[Pod]) -> list[Pod]:
        """Returns the pods that the pool selects and no older pool selects, because an engine has only one config."""
        older = [other for other in self._others(pool) if other.meta.age_order < pool.meta.age_order]
        return [
            pod
            for pod in pods
            if not pod.meta.deleting
            and matches(pool.selector, pod.labels)
            and not any(matches(other.selector, pod.labels) for other in older)
        ]

    def _overlaps(self, pool: Pool, pods: Iterable[Pod]) -> tuple[Overlap, ...]:
        """Returns the overlaps of the pool's pods with other pools, sorted by the other pools' names."""
        others = self._others(pool)
        shared: dict[tuple[str, bool], list[str]] = {}
        for pod in pods:
            if pod.meta.deleting or not matches(pool.selector, pod.labels):
                continue
            rivals = [other for other in others if matches(other.selector, pod.labels)]
            oldest = min([pool, *rivals], key=lambda rival: rival.meta.age_order)
            # A pod belongs to the oldest pool that selects it. The oldest pool reports all younger pools, and each
            # younger pool reports only the oldest.
            for rival in rivals if oldest is pool else [oldest]:
                shared.setdefault((rival.meta.name, rival is oldest), []).append(pod.meta.name)
        return tuple(Overlap(*which, tuple(sorted(names))) for which, names in sorted(shared.items()))

    def _others(self, pool: Pool) -> list[Pool]:
        """Returns the other pools in a pool's namespace that are not being deleted."""
        pools = self.pools.of(pool.meta.namespace)
        return [other for other in pools if other.meta.name != pool.meta.name and not other.meta.deleting]


def _key(meta: Meta) -> Key:
    return meta.namespace, meta.name
