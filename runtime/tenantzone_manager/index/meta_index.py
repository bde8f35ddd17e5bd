"""MetaIndex: records by key, with changes that depend on what is there, atomic over all that change the same store."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tenantzone_manager.core.books import DROPPED, RankChange
from tenantzone_manager.core.quota import Account, Charge, Terms, together
from tenantzone_manager.index.backend import Address, Change, Commit, Conflict, IndexBackend, IndexUnavailable, Listener
from tenantzone_manager.index.checksums import CorruptRecord, with_checksum, without_checksum
from tenantzone_manager.index.locks import ShardLocks
from tenantzone_manager.index.search_cache import Entry, SearchCache

_log = logging.getLogger(__name__)

_TRIES: Final = 32
"""For one change, while others change the same records."""
_FIRST_READ: Final = 128
"""Of a prefix; if all of it is there, the rest is read at once."""

Found = Mapping[Address, Any]
Modifier = Callable[[Found], Mapping[Address, Any]]
"""What is there → what shall be; None: the record goes. It may be called again, with what is there then."""
RecordListener = Callable[[Address, Any, Any], None]
"""Receives a record that was changed here, as it was and as it is, before anything else is changed."""
MakeTerms = Callable[[Found], Sequence[Terms]]
"""What is there → terms of accounts that are in force from then on. It may be called again, too."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How the records of a space are written, and what follows from a change of one."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    effects: Callable[[Address, Any, Any], tuple[list[Charge], list[RankChange]]] = lambda *_: ([], [])
    ranks: Callable[[Address], list[RankChange]] = lambda _: []
    """Takes a record out of all ranks in which it may be, whatever it says."""
    stand_in: Callable[[Address], Any] = lambda _: None
    """What is written in place of a record that is not what was written; None: it goes."""


@dataclass(slots=True)
class IndexSettings:
    """How the index uses its store."""

    lock_shards: int = 256
    batch_size: int = 512
    """Records that one commit changes, where they need not change together."""
    cached_records: int = 200_000
    max_age_seconds: float = 5.0
    """How long a cached record is believed where other processes change the store, too."""


class MetaIndex:
    """The index of one process over its store.

    Args:
        backend: where the records are.
        codec: of a space.
        settings: how it is used.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        backend: IndexBackend,
        codec: Callable[[str], Codec],
        settings: IndexSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.backend = backend
        self.settings = settings
        max_age = settings.max_age_seconds if backend.is_shared else None
        self.cache = SearchCache(settings.cached_records, max_age, clock)
        self.conflicts = 0
        self.corrupt = 0
        """Records that were dropped as they are not what was written."""
        self._corrupt_spaces: set[str] = set()
        """Those of which it is logged."""
        self._codec = codec
        self._locks = ShardLocks(settings.lock_shards)
        self._listeners: list[Listener] = []
        self._record_listeners: list[RecordListener] = []

    @property
    def staleness_seconds(self) -> float:
        """How long after a change another process may still answer from what was there before."""
        return self.settings.max_age_seconds if self.backend.is_shared else 0.0

    async def start(self) -> None:
        """Open the store."""
        await self.backend.start(self._changed)

    async def close(self) -> None:
        """Let go of the store."""
        await self.backend.close()

    def forget(self) -> None:
        """Forget all that was read: the store may have anything else now."""
        self._changed("", ())

    def on_change(self, listener: Listener) -> None:
        """Have somebody hear of what another process has changed."""
        self._listeners.append(listener)

    def on_record(self, listener: RecordListener) -> None:
        """Have a listener receive each record that is changed here."""
        self._record_listeners.append(listener)

    async def get(self, space: str, keys: Sequence[bytes]) -> list[Entry | None]:
        """Records by key, from the search cache or the store; takes no lock and waits for none."""
        found = self.cache.get(space, keys)
        missing = [key for key, entry in zip(keys, found, strict=True) if entry is None]
        if missing:
            read = dict(zip(missing, await self._read(space, missing), strict=True))
            found = [read[key] if entry is None else entry for key, entry in zip(keys, found, strict=True)]
        return found

    async def get_stored(self, space: str, keys: Sequence[bytes]) -> list[Entry | None]:
        """Records by key as the store has them now, whatever another process has changed without a word of it."""
        return await self._read(space, keys)

    async def get_prefix(self, space: str, keys: Sequence[bytes]) -> list[Entry]:
        """Records by key, up to the first that is not there."""
        found: list[Entry] = [entry for entry in self.cache.get(space, keys, until_missing=True) if entry is not None]
        step = _FIRST_READ
        while len(found) < len(keys):
            more = keys[len(found) : len(found) + step]
            read = await self.get(space, more)
            there = next((index for index, entry in enumerate(read) if entry is None), len(read))
            found += [entry for entry in read[:there] if entry is not None]
            if there < len(more):
                break
            step = len(keys)
        return found

    async def put(self, space: str, values: Mapping[bytes, Any]) -> None:
        """Have records be so, whatever was there."""
        await self.read_modify_write_batches(
            space, list(values), lambda found: {address: values[address.key] for address in found}
        )

    async def update(self, space: str, values: Mapping[bytes, Any]) -> list[bytes]:
        """Have those records be so that are there; returns their keys."""
        updated: set[bytes] = set()

        def modifier(found: Found) -> Mapping[Address, Any]:
            there = [address for address, value in found.items() if value is not None]
            updated.update(address.key for address in there)
            return {address: values[address.key] for address in there}

        await self.read_modify_write_batches(space, list(values), modifier)
        return [key for key in values if key in updated]

    async def delete(self, space: str, keys: Sequence[bytes]) -> None:
        """Have records go."""
        await self.read_modify_write_batches(space, keys, lambda found: dict.fromkeys(found))

    async def read_modify_write(
        self, addresses: Iterable[Address], modifier: Modifier, terms: MakeTerms = lambda _: ()
    ) -> None:
        """Change records all together or not at all, depending on what is there.

        Args:
            addresses: of what is read, and may be changed.
            modifier: says what shall be.
            terms: says, after the modifier, which terms of accounts take effect with it.

        Raises:
            OverLimit: an account has no room for what would be used.
            IndexUnavailable: the store does not answer, or others change the same all the time.
            Exception: whatever the modifier raises; nothing was changed.
        """
        wanted = set(addresses)
        for attempt in range(_TRIES):
            try:
                async with self._locks.held(wanted):
                    await self._try(wanted, modifier, terms)
                return
            except Conflict:
                self.conflicts += 1
                await asyncio.sleep(random.random() * 0.002 * attempt)
        raise IndexUnavailable("others change the same records all the time; try again")

    async def read_modify_write_batches(self, space: str, keys: Sequence[bytes], modifier: Modifier) -> None:
        """The same for many records that need not change together: batch by batch, which share no lock."""
        addresses = [Address(space, key) for key in keys]
        for batch in self._locks.batches(addresses, self.settings.batch_size):
            await self.read_modify_write(batch, modifier)

    async def scan(self, space: str, cursor: bytes, count: int) -> tuple[list[tuple[bytes, Any]], bytes]:
        """About so many records, and the cursor of the next ones; both cursors are empty at the ends."""
        found, following = await self.backend.scan(space, cursor, count)
        return await self._decoded(space, found), following

    async def random_sample(self, space: str, count: int) -> list[tuple[bytes, Any]]:
        """Up to so many different records, about evenly by chance."""
        return await self._decoded(space, await self.backend.random_sample(space, count))

    async def count(self, space: str) -> int:
        """How many records a space has."""
        return await self.backend.count(space)

    async def lowest(
        self, rank: str, count: int, until: float = float("inf"), above: float = float("-inf")
    ) -> list[tuple[bytes, float]]:
        """The members of a rank with the lowest scores above one."""
        return await self.backend.lowest(rank, count, until, above)

    async def account(self, name: str) -> Account:
        """One account; it is empty and without a limit if it was never charged."""
        return (await self.accounts([name])).get(name, Account())

    async def accounts(self, names: Sequence[str]) -> dict[str, Account]:
        """Accounts by name; one that is missing was never charged and has no limit."""
        return await self.backend.accounts(names)

    async def _read(self, space: str, keys: Sequence[bytes]) -> list[Entry | None]:
        token = self.cache.begin_read()
        raw = await self.backend.get(space, keys)
        there = await self._decoded(space, [each for each in zip(keys, raw, strict=True) if each[1] is not None])
        entries = dict(zip((key for key, _ in there), self.cache.put(space, there, token), strict=True))
        return [entries.get(key) for key in keys]

    async def _decoded(self, space: str, raw: Sequence[tuple[bytes, bytes | None]]) -> list[tuple[bytes, Any]]:
        """Records as values, without those that are not what was written: these are dropped."""
        there: list[tuple[bytes, Any]] = []
        corrupt: dict[Address, bytes | None] = {}
        for key, stored in raw:
            address = Address(space, key)
            try:
                there.append((key, self.decode(address, stored)))
            except CorruptRecord:
                corrupt[address] = stored
        for address, stored in corrupt.items():
            async with self._locks.held([address]):
                await self._drop(address, stored)
        return there

    def decode(self, address: Address, stored: bytes | None) -> Any:
        """A record as it was written.

        Raises:
            CorruptRecord: it is not what was written.
        """
        if stored is None:
            return None
        try:
            return self._codec(address.space).decode(without_checksum(address, stored))
        except (ValueError, msgspec.MsgspecError) as error:
            raise CorruptRecord from error

    async def _drop(self, address: Address, stored: bytes | None) -> None:
        """Have a record go that is not what was written, unless it is another one by now."""
        codec = self._codec(address.space)
        stand_in = codec.stand_in(address)
        after = None if stand_in is None else with_checksum(address, codec.encode(stand_in))
        # Whichever process recounts learns of it by the index.
        counted = [Charge((DROPPED,), deleting=1)]
        commit = Commit([Change(address, stored, after)], counted, codec.ranks(address))
        try:
            await self.backend.commit(commit)
        except Conflict:
            return
        finally:
            self.cache.invalidate(address.space, [address.key])
        self.corrupt += 1
        if address.space not in self._corrupt_spaces:
            self._corrupt_spaces.add(address.space)
            _log.error(
                "the record %s of %s is not what was written, and is dropped; further ones there are counted only",
                address.key.hex(),
                address.space,
            )

    async def _try(self, addresses: set[Address], modifier: Modifier, terms: MakeTerms) -> None:
        raw = await self._raw(addresses)
        codecs = {space: self._codec(space) for space in {address.space for address in addresses}}
        found: dict[Address, Any] = {}
        for address, stored in raw.items():
            try:
                found[address] = self.decode(address, stored)
            except CorruptRecord:
                await self._drop(address, stored)
                raise Conflict from None
        commit, values = Commit(), modifier(found)
        for address, after in values.items():
            codec = codecs[address.space]
            charges, ranks = codec.effects(address, found[address], after)
            commit.changes.append(
                Change(address, raw[address], None if after is None else with_checksum(address, codec.encode(after)))
            )
            commit.charges += charges
            commit.ranks += ranks
        commit.charges = together(commit.charges)
        commit.terms = list(terms(found))
        if not commit.changes and not commit.terms:
            return
        try:
            await self.backend.commit(commit)
            for listener in self._record_listeners:
                for address, after in values.items():
                    listener(address, found[address], after)
        finally:
            # Also where it is not known whether it was made.
            for space in codecs:
                if changed := [each.address.key for each in commit.changes if each.address.space == space]:
                    self.cache.invalidate(space, changed)

    async def _raw(self, addresses: set[Address]) -> dict[Address, bytes | None]:
        by_space: dict[str, list[bytes]] = {}
        for space, key in addresses:
            by_space.setdefault(space, []).append(key)
        raw: dict[Address, bytes | None] = {}
        for space, keys in by_space.items():
            values = await self.backend.get(space, keys)
            raw.update({Address(space, key): value for key, value in zip(keys, values, strict=True)})
        return raw

    def _changed(self, space: str, keys: Sequence[bytes]) -> None:
        self.cache.invalidate(space, keys)
        for listener in self._listeners:
            listener(space, keys)
