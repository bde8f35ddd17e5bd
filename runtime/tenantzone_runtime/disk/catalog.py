"""The catalog of a disk, in memory: the files of each zone's chunks, and the files to remove.

Only the caller's thread uses the catalog. Threads of the tier remove files and list the folder. The catalog retries
these operations if they fail.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from math import inf
from typing import Final

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.disk.adoption import Adoption, Runner
from tenantzone_runtime.disk.breaker import Breaker
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.disk.files.layout import ObjectName
from tenantzone_runtime.disk.files.objects import Objects
from tenantzone_runtime.disk.files.sealing import Seal
from tenantzone_runtime.disk.relinking import Block, FoundHit
from tenantzone_runtime.disk.spaces import Entry, Slots, Space
from tenantzone_runtime.disk.sweeping import Sweeping
from tenantzone_runtime.disk.transfers import Removal
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tiers.hit_shape import HitShape
from tenantzone_runtime.zones.tiers.links import Place
from tenantzone_runtime.zones.tiers.tier import Tier

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Minimum seconds between two checks that the tier's folder was not removed or replaced."""
FILES_AT_ONCE: Final = 100
"""Maximum number of removals in progress in a sweep, and of removals that one :meth:`Catalog.go_on` retries."""


class Catalog:
    """The chunks of all zones on one disk, and the files that must be removed from the disk.

    Args:
        objects: access to the tier's files.
        tier: the zones' shares of the disk. Its number of chunks is the number of files that fit on the disk.
        seals: returns a zone's seal, given the tenant and the id of the zone's last purge (empty for none).
        run: runs a function on one of the writer threads.
        shape: hit shape of a model whose chunks are only useful together; None if each chunk is useful on its own.
    """

    def __init__(
        self,
        objects: Objects,
        tier: Tier,
        seals: Callable[[str, str], Seal],
        run: Runner,
        shape: HitShape | None = None,
    ) -> None:
        self.breaker = Breaker(service="The disk tier's removals")
        """The circuit breaker of removals and listings."""
        self.removals_failed = 0
        self.slots = Slots(tier.chunk_count)
        self._objects = objects
        self._tier = tier
        self._seals = seals
        self._run = run
        self._spaces: dict[str, Space] = {}
        self._space_of: dict[int, tuple[Space, bytes]] = {}
        """The space and the chunk's key, by slot, for each slot in use."""
        self._failed: dict[Removal, int] = {}
        """The slot of each failed removal that must be retried."""
        self._shape = shape
        self._adoption = Adoption(objects, tier, self.slots, shape)
        self.is_lost = False
        """Whether the folder was removed or replaced, so that all chunks in the catalog are lost."""
        self._is_looking = False
        self._looked_at = -inf
        self._sweeping = Sweeping(objects, self.slots, run, self._swept)
        self._list_files()

    @property
    def is_open(self) -> bool:
        """Whether chunks may be stored: the disk was listed, and files that belong to no zone were removed."""
        return self._adoption.is_done and not self._sweeping.has_strangers

    @property
    def is_at_rest(self) -> bool:
        """Whether no removals of files are pending."""
        return not (self.slots.to_remove or self._sweeping.has_work)

    @property
    def found(self) -> int:
        """Number of adopted chunks: a previous engine process wrote them, and zones got them at the start."""
        return self._adoption.found

    @property
    def leftovers(self) -> int:
        """Number of files that were removed at engine start because they were not complete chunks."""
        return self._adoption.leftovers

    # Chunks

    def entry(self, zone: Zone, key: bytes) -> Entry | None:
        """Returns a zone's chunk, whether stored or being stored; None if the zone has no chunk with this key."""
        space = self._spaces.get(zone.spec.tenant)
        return None if space is None else space.entries.get(key)

    def slots_of(self, zone: Zone, keys: Iterable[bytes]) -> list[int]:
        """Returns the slots of the zone's chunks with these keys. Keys without a chunk are skipped."""
        entries = [self.entry(zone, key) for key in keys]
        return [entry.slot for entry in entries if entry is not None]

    def space(self, zone: Zone) -> Space:
        """Returns the space of the zone's chunks. Creates the space if the zone has none."""
        tenant = zone.spec.tenant
        space = self._spaces.get(tenant)
        if space is None:
            space = self._spaces[tenant] = self._new_space(tenant, zone.spec.purge)
        return space

    def is_purging(self, zone: Zone) -> bool:
        """Returns whether an unfinished purge would also remove files that the zone writes now."""
        return self._sweeping.is_going(self.space(zone).seal.folder)

    def add(self, space: Space, slot: int, name: ObjectName) -> Removal | None:
        """Record that a chunk is about to be written. Returns the removal to make before the write, or None."""
        space.entries[name.key] = Entry(slot, name)
        self._space_of[slot] = space, name.key
        return self.slots.removal(slot)

    def forget(self, slots: Iterable[int]) -> None:
        """Delete the entries of evicted chunks, and start removing their files."""
        for slot in slots:
            space, key = self._space_of.pop(slot)
            entry = space.entries.pop(key)
            if space.receipt is not None:
                # Do not remove the file here, because the sweep of the ended space removes it.
                space.given_up.append(slot)
                continue
            removal = Removal(self._objects, space.seal.folder, entry.name, self.slots.removal(slot))
            self.slots.give_up(slot, removal)
            self._remove(slot, removal)

    # Spaces

    def renew_purged(self, config: RuntimeConfig) -> Iterator[None]:
        """Create spaces for a config's new zones, and replace the spaces of purged zones, one zone per iteration."""
        for zone in config.zones:
            space = self._spaces.get(zone.tenant)
            if space is None:
                self._spaces[zone.tenant] = self._new_space(zone.tenant, zone.purge)
            elif zone.purge and zone.purge != space.purge:
                self._retire(space, zone.purge)
                self._spaces[zone.tenant] = self._new_space(zone.tenant, zone.purge)
            yield

    def retire_if_gone(self, tenant: str) -> None:
        """Remove all chunks of a tenant if the tenant's zone was removed."""
        zone = self._tier.ledger.zones.get(tenant)
        if (zone is None or zone.leaving) and (space := self._spaces.pop(tenant, None)) is not None:
            self._retire(space, "")

    def reseal(self, tenant: str) -> Space:
        """Give a tenant a new space, sealed with the pool's current salt key. Returns the previous space."""
        space = self._spaces[tenant]
        self._spaces[tenant] = self._new_space(tenant, space.purge)
        return space

    @property
    def tenants(self) -> list[str]:
        """All tenants that have a space."""
        return list(self._spaces)

    def take_receipts(self) -> list[Receipt]:
        """Returns a receipt for each space whose files were all removed since the last call."""
        return self._sweeping.take_receipts()

    def _retire(self, space: Space, purge: str) -> None:
        space.receipt = Receipt(space.tenant, purge, len(space.entries))
        self._sweeping.add(space)

    def _new_space(self, tenant: str, purge: str) -> Space:
        return Space(tenant, purge, self._seals(tenant, purge))

    # Time

    def tidy(self) -> Iterator[None]:
        """Assign the found files to zones once, and remove files that belong to no zone, one tenant per iteration."""
        if self._adoption.is_ready and self._tier.tenancy.pool is not None:
            for space, key, entry in self._adoption.adopt(self._spaces):
                space.entries[key] = entry
                self._space_of[entry.slot] = space, key
            for space, hits in self._adoption.hits.items():
                self._link(space, hits)
            self._adoption.hits.clear()
            self._sweeping.add_strangers(self._adoption.strangers, self._adoption.excess)
            self._sweeping.go_on(FILES_AT_ONCE)
        for tenant in self.tenants:
            self.retire_if_gone(tenant)
            yield

    def _link(self, space: Space, hits: Iterable[FoundHit]) -> None:
        """Link the chunks of each hit, which are only useful together, and evict chunks that belong to no hit."""
        slots = {key: entry.slot for key, entry in space.entries.items()}
        places: dict[Block, Place | None] = {}
        for hit in hits:
            blocks = hit.blocks(places)
            parts = [*map(hit.of_beginning, blocks), hit.of_windows()]
            if not all(key in slots for part in parts for key in part):
                continue
            before = blocks[0].before if blocks else hit.end
            place = None if before is None else places[before]
            for block, part in zip(blocks, parts, strict=False):
                place = places[block] = self._tier.links.go_on(place, [slots[key] for key in part])
            self._tier.links.end(self._tier.links.go_on(place, [slots[key] for key in parts[-1]]))
        self.forget(self._tier.link(self._tier.ledger.zones[space.tenant], slots.values(), []))

    def begin_anew(self) -> None:
        """List the folder again, as at engine start. The caller must have evicted all chunks in the catalog."""
        before, self._adoption = self._adoption, Adoption(self._objects, self._tier, self.slots, self._shape)
        self._adoption.found, self._adoption.leftovers = before.found, before.leftovers
        self.is_lost = False
        self._list_files()

    def _look_at_folder(self, now: float) -> None:
        """Check on a thread, every LOOK_SECONDS, that the folder was not removed or replaced."""
        if self._is_looking or not self._adoption.is_done or now < self._looked_at + LOOK_SECONDS:
            return
        self._is_looking, self._looked_at = True, now
        found: list[bool] = []

        def looked(_: Exception | None) -> None:
            # Keep the chunks after an error, because a disk that does not respond may still have them.
            self._is_looking = False
            if found == [False]:
                logger.warning("The disk tier's folder was removed or replaced, so all chunks in it are lost")
                self.is_lost = True

        self._run("", lambda: found.append(self._objects.is_in_place()), looked)

    def go_on(self, now: float) -> None:
        """Retry failed listings and removals, and start removing the files of ended spaces that have no transfers."""
        self._look_at_folder(now)
        if not self.breaker.allows(now):
            return
        self._list_files()
        at_most = 1 if self.breaker.is_open else FILES_AT_ONCE
        for removal in list(islice(self._failed, at_most)):
            self._remove(self._failed.pop(removal), removal)
        self._sweeping.go_on(at_most)

    def sweep(self) -> None:
        """Start removing the files of ended spaces that have no transfers."""
        self._sweeping.go_on(FILES_AT_ONCE)

    def _list_files(self) -> None:
        removals = [removal for _, removal in self.slots.to_remove]
        self._adoption.list_files(self._run, lambda error: self.breaker.note(error, "list its folder"), removals)

    def _remove(self, slot: int, removal: Removal) -> None:
        self._run("", removal.make, partial(self._removed, slot, removal))

    def _removed(self, slot: int, removal: Removal, error: Exception | None) -> None:
        if error is None:
            self.slots.removed(slot, removal)
        elif self.slots.removal(slot) is removal:
            self._failed[removal] = slot
        self._swept(error)

    def _swept(self, error: Exception | None) -> None:
        if error is None:
            self.breaker.succeeded()
            if self._sweeping.has_work:
                self.sweep()
        else:
            self.removals_failed += 1
            self.breaker.note(error, "remove a file")
