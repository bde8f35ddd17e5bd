"""Adoption: assigns the chunk files that a previous engine process left on the disk to zones."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from tenantzone_runtime.disk.files.layout import ObjectName
from tenantzone_runtime.disk.files.objects import Found, FoundObject, Objects
from tenantzone_runtime.disk.relinking import Block, FoundHit, find_hits
from tenantzone_runtime.disk.spaces import Entry, Slots, Space
from tenantzone_runtime.disk.transfers import Removal
from tenantzone_runtime.zones.tiers.hit_shape import HitShape
from tenantzone_runtime.zones.tiers.tier import Tier

Runner = Callable[[str, Callable[[], object], Callable[[Exception | None], None]], None]
"""Runs a function for a tenant on a thread. Then calls a callback on the caller's thread with the error, or None."""


class Adoption:
    """Lists the files on the disk when the engine starts, and decides which of them to keep.

    Args:
        objects: access to the tier's files.
        tier: the zones' shares of the disk.
        slots: the tier's slots. All must be free.
        shape: hit shape of a model whose chunks are only useful together; None if each chunk is useful on its own.
    """

    def __init__(self, objects: Objects, tier: Tier, slots: Slots, shape: HitShape | None = None) -> None:
        self.is_done = False
        self.leftovers = 0
        self.found = 0
        self.strangers: set[str] = set()
        """Folders that belong to no zone of this engine."""
        self.excess: set[tuple[str, ObjectName]] = set()
        """Files to remove: they do not fit into their zones' shares, or a newer file has the same chunk."""
        self.hits: dict[Space, list[FoundHit]] = {}
        """The hits that the kept chunks form; empty if each chunk is useful on its own."""
        self._shape = shape
        self._objects = objects
        self._tier = tier
        self._slots = slots
        self._listing: Found | None = None
        self._is_listing = False

    @property
    def is_ready(self) -> bool:
        """Whether the disk was listed, but its files were not adopted yet."""
        return self._listing is not None and not self.is_done

    def list_files(self, run: Runner, failed: Callable[[Exception], None], before: Iterable[Removal] = ()) -> None:
        """Start listing the disk, unless a listing is in progress or has succeeded.

        Args:
            run: runs a function on a thread.
            failed: called with the error if the listing fails. The caller must then call this method again.
            before: removals that the thread makes first, so that the listing does not include the removed files.
        """
        if self._is_listing or self._listing is not None:
            return
        self._is_listing = True
        found: list[Found] = []

        def listed(error: Exception | None) -> None:
            self._is_listing = False
            if error is not None:
                failed(error)
                return
            self._listing = found[0]
            self.leftovers += found[0].leftovers

        def work() -> None:
            for removal in before:
                removal.make()
            found.append(self._objects.open())

        run("", work, listed)

    def adopt(self, spaces: Mapping[str, Space]) -> Iterator[tuple[Space, bytes, Entry]]:
        """Assign the found files to the zones, up to the zones' shares, and yield each kept chunk.

        A zone's most recently used chunks are kept. The disk may be smaller than before. So each zone's reservation is
        filled before any zone keeps more chunks than its reservation.
        """
        assert self._listing is not None, "the disk must be listed before its files are adopted"
        left = dict(self._listing.objects)
        self.is_done = True
        zones = self._tier.ledger.zones
        within = {
            zone: min(zone.spec.quota.reserved, len(left.get(space.seal.folder, ())))
            for tenant, space in spaces.items()
            if (zone := zones.get(tenant)) is not None
        }
        kept_for_others = sum(within.values())
        for tenant, space in spaces.items():
            zone = zones.get(tenant)
            objects = left.pop(space.seal.folder, [])
            if zone is None or not objects:
                continue
            kept_for_others -= within[zone]
            ttl = zone.spec.retention.ttl_seconds
            wall = time.time()
            newest = {found.name.key: found for found in sorted(objects, key=_used_at)}
            # After the clock was set back, files may have a time in the future.
            ages = {key: max(0.0, wall - found.used_at) for key, found in newest.items()}
            fit = [found for key, found in newest.items() if ttl is None or ages[key] < ttl]
            fit = [] if zone.leaving or zone.spec.retention.no_store else sorted(fit, key=_used_at)
            if self._shape is not None:
                fit, ages = self._by_hits(space, fit, ages, self._shape)
            free = self._slots.take(min(len(fit), len(self._slots.free) - kept_for_others))
            unused_for = [ages[found.name.key] for found in fit]
            granted, _ = self._tier.find_again(zone, free, unused_for)
            self._slots.give_back(free[len(granted) :])
            kept = fit[len(fit) - len(granted) :]
            self.found += len(kept)
            for slot, found in zip(granted, kept, strict=True):
                yield space, found.name.key, Entry(slot, found.name)
            names = {found.name for found in kept}
            self.excess.update((space.seal.folder, found.name) for found in objects if found.name not in names)
        self.strangers.update(left)
        self._listing = Found()

    def _by_hits(
        self, space: Space, fit: list[FoundObject], ages: Mapping[bytes, float], shape: HitShape
    ) -> tuple[list[FoundObject], dict[bytes, float]]:
        """Returns the chunks that belong to hits, ordered by hit, and the age of each chunk's hit in seconds.

        The most recently used hit comes last.
        """
        by_key = {found.name.key: found for found in fit}
        hits = find_hits((found.name for found in fit), shape)
        extents: dict[Block, tuple[float, float]] = {}
        """For each block, the maximum and minimum ages of the prompt's chunks up to and including the block."""
        ranks: dict[FoundHit, tuple[float, float, int]] = {}
        for hit in hits:
            for block in hit.blocks(extents):
                of_block = [ages[key] for key in hit.of_beginning(block)]
                before = () if block.before is None else extents[block.before]
                extents[block] = max((*of_block, *before)), min((*of_block, *before))
            of_hit = [*extents[hit.end], *(ages[key] for key in hit.of_windows())]
            # Hits that share chunks may have the same age. Ties are broken by the newest chunk, then by the length.
            ranks[hit] = max(of_hit), min(of_hit), -hit.end.length
        order = sorted(hits, key=ranks.__getitem__, reverse=True)
        self.hits[space] = order
        as_old: dict[bytes, float] = {}
        of_hits: list[list[bytes]] = []
        placed: set[Block] = set()
        for hit in reversed(order):
            # A chunk of several hits gets the age and the position of the most recently used hit.
            blocks = hit.blocks(placed)
            placed.update(blocks)
            keys = [*(key for block in blocks for key in hit.of_beginning(block)), *hit.of_windows()]
            of_hits.append([key for key in keys if key not in as_old])
            as_old.update(dict.fromkeys(of_hits[-1], ranks[hit][0]))
        return [by_key[key] for keys in reversed(of_hits) for key in keys], as_old


def _used_at(found: FoundObject) -> float:
    return found.used_at
