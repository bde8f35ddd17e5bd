"""StartWriteCache and FinishWriteCache: two-phase writes, for which bytes are reserved with the first phase."""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.changing import Beside, change_blocks
from tenantzone_manager.core import placement
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.quota import OverLimit
from tenantzone_manager.core.records import CacheLocation, State
from tenantzone_manager.core.settings import Instance, Spec
from tenantzone_manager.core.slots import SlotFile
from tenantzone_manager.core.writing import (
    Ending,
    Standing,
    begin,
    depths_of,
    finish,
    leave,
    location_of,
    parents_of,
    standing_of,
    standings,
    use,
)
from tenantzone_manager.index.backend import Address
from tenantzone_manager.index.meta_index import Found, MetaIndex
from tenantzone_manager.parts import Files, Parts, SlotsShort, addresses_of
from tenantzone_manager.reading import LocationPlace, place_of
from tenantzone_manager.storages.backend import Place, StorageError
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.timing import Timing

_TRIES: Final = 8
"""To find room that others take meanwhile."""


@dataclass(frozen=True, slots=True)
class Started:
    """The answer to StartWriteCache."""

    write_id: str
    """For FinishWriteCache; empty: there is nothing to write."""
    deadline: float
    """Unix time at which the writer is taken for dead."""
    standings: list[Standing]
    """Of each block."""
    locations: dict[int, LocationPlace]
    """By index, where to write the blocks that stand at ``write``."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where blocks of one commit go."""

    space: str
    keys: Sequence[bytes]
    parents: Sequence[int]
    specs: Mapping[int, tuple[Spec, ...]]
    places: Mapping[int, placement.Candidate]
    files: Files
    """Of which slots may be taken."""
    needs_prefix: bool
    write_id: str
    deadline: float
    now: float

    @property
    def ends(self) -> set[int]:
        """The blocks that no other one follows."""
        return set(range(len(self.keys))).difference(self.parents)


class Writer:
    """Lets blocks be written, by two calls.

    Args:
        index: what is known of blocks.
        catalog: groups and their storages.
        storages: where blocks may go.
        parts: makes what locations consist of.
        timing: how long writes may take.
        clock: Unix time.
    """

    def __init__(
        self,
        index: MetaIndex,
        catalog: Catalog,
        storages: DataStorageManager,
        parts: Parts,
        timing: Timing,
        clock: Callable[[], float],
    ) -> None:
        self._index = index
        self._catalog = catalog
        self._storages = storages
        self._parts = parts
        self._timing = timing
        self._clock = clock

    async def start_write_cache(
        self,
        instance: Instance,
        keys: Sequence[bytes],
        *,
        first: int = 0,
        parents: Sequence[int] = (),
        spec_sets: Sequence[str] = (),
        whole: bool = False,
        write_seconds: float | None = None,
    ) -> Started:
        """Reserve room for those blocks of a prompt that are missing, and say where they are to be written.

        Args:
            instance: whose.
            keys: of the prompt's blocks, from its beginning.
            first: of the blocks that the caller has; those before it are named only.
            parents: of each block, the index of the block before it in its prompt, and -1 where there is none; empty:
                each follows the one that is named before it. So a write may have what several groups of a model's KV
                caches keep of a prompt: of a window, the last blocks hang on those of full attention.
            spec_sets: of each block from ``first`` on, which parts it has; empty: all, of all blocks.
            whole: whether nothing is to be written where not all that is missing can be: a part would be of no use.
            write_seconds: after how long the writer is taken for dead; None: as usual.

        Raises:
            ValueError: a spec set is none of the instance's, a parent none of the blocks before its own, or there are
                more or fewer of either than blocks.
            IndexUnavailable: the index does not answer; what may be reserved is given back when its time is over.
        """
        specs = _specs(instance, len(keys), first, spec_sets)
        space = spaces.blocks_of(instance)
        parents = parents_of(len(keys), parents)
        found = await self._index.get(space, keys)
        blocks = [entry.value if entry else None for entry in found]
        names = _names(specs)
        made = standings(blocks, parents, first, instance.needs_prefix, self._storages.is_available, names)
        wanted = [index for index, standing in enumerate(made) if standing is Standing.WRITE]
        if whole and Standing.NO_PREFIX in made[first:]:
            for index in wanted:
                made[index] = Standing.NO_PREFIX
            wanted = []
        now = self._clock()
        deadline = now + min(self._timing.write if write_seconds is None else write_seconds, self._timing.longest_write)
        write_id = secrets.token_urlsafe(9).replace("-", "_")
        locations: dict[int, LocationPlace] = {}
        failed: set[str] = set()
        for _ in range(_TRIES):
            if not wanted:
                break
            plan = await self._plan(instance, keys, parents, specs, wanted, failed, (write_id, deadline, now))
            if whole and len(plan.places) < len(wanted):
                break
            try:
                taken, became = await self._reserve(plan)
            except (OverLimit, SlotsShort):
                continue
            for index in wanted:
                made[index] = became.get(index, Standing.NO_ROOM)
            wanted = await self._make_writable(instance, keys, taken, failed, locations)
        for index in wanted:
            made[index] = Standing.NO_ROOM
        lacking = next((each for each in (Standing.NO_ROOM, Standing.NO_PREFIX) if each in made[first:]), None)
        if whole and lacking and locations:
            # What it lacks was there, or seemed to have room, when the rest was begun.
            await self._take_back(instance, [keys[index] for index in locations], {write_id})
            made = [lacking if index in locations else standing for index, standing in enumerate(made)]
            locations = {}
        return Started(write_id if locations else "", deadline, made, locations)

    async def finish_write_cache(
        self, instance: Instance, write_id: str, written: Sequence[bytes], failed: Sequence[bytes]
    ) -> list[Ending]:
        """End a write: what was written serves from now on, the rest goes.

        Args:
            instance: whose.
            write_id: from StartWriteCache.
            written: keys of blocks of which all bytes are in the storage.
            failed: keys of blocks of which not.

        Returns:
            What became of each block, first of the written ones.

        Raises:
            IndexUnavailable: the index does not answer. It may be repeated.
        """
        endings: list[Ending] = []
        due = self._timing.unread_from(self._clock(), self._index.staleness_seconds)

        def change(draft: Draft, _: Found) -> None:
            endings.clear()
            endings.extend(finish(draft, key, write_id, True, due) for key in written)
            endings.extend(finish(draft, key, write_id, False, due) for key in failed)

        await change_blocks(self._index, spaces.blocks_of(instance), [*written, *failed], change)
        return endings

    async def _plan(
        self,
        instance: Instance,
        keys: Sequence[bytes],
        parents: Sequence[int],
        specs: Mapping[int, tuple[Spec, ...]],
        wanted: Sequence[int],
        failed: Collection[str],
        write: tuple[str, float, float],
    ) -> _Plan:
        group = self._catalog.groups.get(instance.group)
        names = [name for name in (group.storages if group else ()) if name not in failed]
        available = self._storages.get_available_storage(names)
        candidates = [placement.Candidate(each.name, each.type) for each in available]
        space = spaces.blocks_of(instance)
        owner = spaces.owner_of(space)
        accounts = await self._index.accounts(placement.accounts_of(owner, candidates))
        sizes = [sum(spec.size for spec in specs[index]) for index in wanted]
        chosen = placement.place(sizes, owner, candidates, accounts)
        places = {index: place for index, place in zip(wanted, chosen, strict=True) if place is not None}
        wanted_parts = ((place.name, specs[index]) for index, place in places.items())
        files = await self._parts.files(instance.group, wanted_parts)
        return _Plan(space, keys, parents, specs, places, files, instance.needs_prefix, *write)

    async def _reserve(self, plan: _Plan) -> tuple[dict[int, CacheLocation], dict[int, Standing]]:
        """Make all of a plan's locations ``writing``, as far as nobody else has come first."""
        taken: dict[int, CacheLocation] = {}
        became: dict[int, Standing] = {}
        slot_files: dict[Address, SlotFile] = {}
        depths = depths_of(plan.parents)
        ends = [plan.keys[index] for index in plan.ends - plan.places.keys()]
        names = _names({index: plan.specs[index] for index in plan.places})

        def change(draft: Draft, found: Found) -> Beside:
            for kept in (taken, became, slot_files):
                kept.clear()
            for index, place in plan.places.items():
                before = _before(plan, index)
                block = draft.get(plan.keys[index])
                own = location_of(block, plan.write_id)
                if own is not None and own.state is State.WRITING:
                    # An earlier try was made, and its answer was lost.
                    taken[index], became[index] = own, Standing.WRITE
                    continue
                standing = standing_of(block, self._storages.is_available, names[index])
                if standing is Standing.WRITE and plan.needs_prefix and before and not _is_live(draft, before):
                    standing = Standing.NO_PREFIX
                became[index] = standing
                if standing is Standing.WRITE:
                    parts = self._parts.take(place.name, plan.specs[index], plan.files, found, slot_files)
                    taken[index] = CacheLocation(
                        plan.write_id, place.type, place.name, State.WRITING, plan.deadline, parts
                    )
                    begin(draft, plan.keys[index], before, depths[index], taken[index], plan.now)
            for key in ends:
                # What is there of windows is of use with what is written now, and is not to go before it.
                use(draft, key, plan.now, 0)
            return dict(slot_files)

        needed = {plan.keys[index] for index in plan.places}.union(ends)
        needed |= {before for index in plan.places if (before := _before(plan, index))}
        try:
            await change_blocks(self._index, plan.space, needed, change, addresses_of(plan.files))
        except SlotsShort:
            await self._parts.look_again(plan.files)
            raise
        self._parts.note(slot_files)
        return taken, became

    async def _make_writable(
        self,
        instance: Instance,
        keys: Sequence[bytes],
        taken: Mapping[int, CacheLocation],
        failed: set[str],
        locations: dict[int, LocationPlace],
    ) -> list[int]:
        """Have the storages ready for what was reserved; returns the blocks for which another one has to be found."""
        again: list[int] = []
        for storage in {location.storage for location in taken.values()}:
            here = {index: location for index, location in taken.items() if location.storage == storage}
            places = {index: Place(instance.group, instance.name, keys[index], each) for index, each in here.items()}
            try:
                await self._storages.create(storage, list(places.values()))
            except StorageError:
                failed.add(storage)
                await self._take_back(instance, [keys[index] for index in here], {each.id for each in here.values()})
                again += here
                continue
            locations |= {index: place_of(self._storages, place) for index, place in places.items()}
        return sorted(again)

    async def _take_back(self, instance: Instance, keys: Sequence[bytes], ids: Collection[str]) -> None:
        def change(draft: Draft, _: Found) -> None:
            for key in keys:
                leave(draft, key, lambda location: location.id in ids, 0.0)

        await change_blocks(self._index, spaces.blocks_of(instance), keys, change)


def _specs(instance: Instance, count: int, first: int, spec_sets: Sequence[str]) -> dict[int, tuple[Spec, ...]]:
    if spec_sets and len(spec_sets) != count - first:
        raise ValueError(f"{len(spec_sets)} spec sets do not fit {count - first} blocks from the first to write on")
    return {index: instance.specs_of(spec_sets[index - first] if spec_sets else "") for index in range(first, count)}


def _names(specs: Mapping[int, tuple[Spec, ...]]) -> dict[int, frozenset[str]]:
    """Of each block, the names of its parts; most blocks have the same parts."""
    of_parts = {parts: frozenset([spec.name for spec in parts]) for parts in set(specs.values())}
    return {index: of_parts[parts] for index, parts in specs.items()}


def _before(plan: _Plan, index: int) -> bytes:
    """The key of the block before one; empty: there is none."""
    parent = plan.parents[index]
    return plan.keys[parent] if parent >= 0 else b""


def _is_live(draft: Draft, key: bytes) -> bool:
    block = draft.get(key)
    return block is not None and bool(block.live_types)
