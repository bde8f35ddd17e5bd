"""MetaIndex: records by key with atomic read-modify-write changes, even across processes that share the store."""

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
"""Maximum number of attempts for one change while other callers change the same records."""
_FIRST_READ: Final = 128
"""Number of records of a prefix in the first read. If all of them exist, a second read gets all remaining records."""

Found = Mapping[Address, Any]
Modifier = Callable[[Found], Mapping[Address, Any]]
"""Maps current records to changed records; None removes a record. Called again with newer records after a conflict."""
RecordListener = Callable[[Address, Any, Any], None]
"""Called with the address, old value and new value of each record that this process changed, before its next change."""
MakeTerms = Callable[[Found], Sequence[Terms]]
"""Receives current records, and returns new terms of accounts. Called again after a conflict."""


@dataclass(frozen=True, slots=True)
class Codec:
    """The encoding of a space's records, and the effects that a change of a record has on accounts and ranks."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    effects: Callable[[Address, Any, Any], tuple[list[Charge], list[RankChange]]] = lambda *_: ([], [])
    ranks: Callable[[Address], list[RankChange]] = lambda _: []
    """Returns the changes that remove a record from all ranks, whatever its content."""
    stand_in: Callable[[Address], Any] = lambda _: None
    """Returns the replacement for a corrupt record, or None to delete the corrupt record."""


@dataclass(slots=True)
class IndexSettings:
    """Settings that control how the index uses the store."""

    lock_shards: int = 256
    batch_size: int = 512
    """Maximum number of records in one commit if the records need not change together."""
    cached_records: int = 200_000
    max_age_seconds: float = 5.0
    """Seconds for which a cached record is valid if other processes may change the store."""


class MetaIndex:
    """The access of one process to the index in a store.

    Args:
        backend: store of the records.
        codec: returns the codec of a space.
        settings: settings.
        clock: returns monotonic seconds.
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
        """Number of corrupt records that this process has dropped."""
        self._corrupt_spaces: set[str] = set()
        """Names of the spaces for which a corrupt record has been logged."""
        self._codec = codec
        self._locks = ShardLocks(settings.lock_shards)
        self._listeners: list[Listener] = []
        self._record_listeners: list[RecordListener] = []

    @property
    def staleness_seconds(self) -> float:
        """Maximum number of seconds after a change for which another process may still return the old record."""
        return self.settings.max_age_seconds if self.backend.is_shared else 0.0

    async def start(self) -> None:
        """Open the store."""
        await self.backend.start(self._changed)

    async def close(self) -> None:
        """Close the store."""
        await self.backend.close()

    def forget(self) -> None:
        """Discard all cached records because the store may have changed completely."""
        self._changed("", ())

    def on_change(self, listener: Listener) -> None:
        """Register a listener for changes by other processes."""
        self._listeners.append(listener)

    def on_record(self, listener: RecordListener) -> None:
        """Register a listener for each record that this process changes."""
        self._record_listeners.append(listener)

    async def get(self, space: str, keys: Sequence[bytes]) -> list[Entry | None]:
        """Returns records by key, from the search cache or the store, without locking; None for missing records."""
        found = self.cache.get(space, keys)
        missing = [key for key, entry in zip(keys, found, strict=True) if entry is None]
        if missing:
            read = dict(zip(missing, await self._read(space, missing), strict=True))
            found = [read[key] if entry is None else entry for key, entry in zip(keys, found, strict=True)]
        return found

    async def get_stored(self, space: str, keys: Sequence[bytes]) -> list[Entry | None]:
        """Returns records by key from the store, bypassing the search cache; None for missing records."""
        return await self._read(space, keys)

    async def get_prefix(self, space: str, keys: Sequence[bytes]) -> list[Entry]:
        """Returns the records with these keys, up to the first missing record."""
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
        """Create or replace records."""
        await self.read_modify_write_batches(
            space, list(values), lambda found: {address: values[address.key] for address in found}
        )

    async def update(self, space: str, values: Mapping[bytes, Any]) -> list[bytes]:
        """Replace records that exist; returns the keys of the replaced records."""
        updated: set[bytes] = set()

        def modifier(found: Found) -> Mapping[Address, Any]:
            there = [address for address, value in found.items() if value is not None]
            updated.update(address.key for address in there)
            return {address: values[address.key] for address in there}

        await self.read_modify_write_batches(space, list(values), modifier)
        return [key for key in values if key in updated]

    async def delete(self, space: str, keys: Sequence[bytes]) -> None:
        """Delete records."""
        await self.read_modify_write_batches(space, keys, lambda found: dict.fromkeys(found))

    async def read_modify_write(
        self, addresses: Iterable[Address], modifier: Modifier, terms: MakeTerms = lambda _: ()
    ) -> None:
        """Read records and change them atomically.

        Args:
            addresses: addresses of the records to read. Only these records may be changed.
            modifier: receives the current records, and returns the changed records.
            terms: receives the current records, and returns new terms of accounts for the same commit; called after
                the modifier.

        Raises:
            OverLimit: an account has no room for the additional bytes.
            IndexUnavailable: the store does not answer, or other callers keep changing the same records.
            Exception: any exception that the modifier raises; nothing was changed.
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
        raise IndexUnavailable("other callers keep changing the same records; try again")

    async def read_modify_write_batches(self, space: str, keys: Sequence[bytes], modifier: Modifier) -> None:
        """Change many records in batches. Each batch is atomic, but the change of all records is not."""
        addresses = [Address(space, key) for key in keys]
        for batch in self._locks.batches(addresses, self.settings.batch_size):
            await self.read_modify_write(batch, modifier)

    async def scan(self, space: str, cursor: bytes, count: int) -> tuple[list[tuple[bytes, Any]], bytes]:
        """Returns about ``count`` records and the cursor for the next call, see :meth:`IndexBackend.scan`."""
        found, following = await self.backend.scan(space, cursor, count)
        return await self._decoded(space, found), following

    async def random_sample(self, space: str, count: int) -> list[tuple[bytes, Any]]:
        """Returns up to ``count`` distinct records, chosen roughly uniformly at random."""
        return await self._decoded(space, await self.backend.random_sample(space, count))

    async def count(self, space: str) -> int:
        """Returns the number of records in a space."""
        return await self.backend.count(space)

    async def lowest(
        self, rank: str, count: int, until: float = float("inf"), above: float = float("-inf")
    ) -> list[tuple[bytes, float]]:
        """Returns at most ``count`` members of a rank, lowest score first, with ``above`` < score <= ``until``."""
        return await self.backend.lowest(rank, count, until, above)

    async def account(self, name: str) -> Account:
        """Returns one account. An account that does not exist is returned as empty and without a limit."""
        return (await self.accounts([name])).get(name, Account())

    async def accounts(self, names: Sequence[str]) -> dict[str, Account]:
        """Returns accounts by name. Accounts that do not exist are missing; they are empty and have no limit."""
        return await self.backend.accounts(names)

    async def _read(self, space: str, keys: Sequence[bytes]) -> list[Entry | None]:
        token = self.cache.begin_read()
        raw = await self.backend.get(space, keys)
        there = await self._decoded(space, [each for each in zip(keys, raw, strict=True) if each[1] is not None])
        entries = dict(zip((key for key, _ in there), self.cache.put(space, there, token), strict=True))
        return [entries.get(key) for key in keys]

    async def _decoded(self, space: str, raw: Sequence[tuple[bytes, bytes | None]]) -> list[tuple[bytes, Any]]:
        """Returns decoded records. Corrupt records are left out and dropped from the store."""
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
        """Returns a decoded record.

        Raises:
            CorruptRecord: the record is corrupt.
        """
        if stored is None:
            return None
        try:
            return self._codec(address.space).decode(without_checksum(address, stored))
        except (ValueError, msgspec.MsgspecError) as error:
            raise CorruptRecord from error

    async def _drop(self, address: Address, stored: bytes | None) -> None:
        """Delete or replace a corrupt record unless it has changed since it was read."""
        codec = self._codec(address.space)
        stand_in = codec.stand_in(address)
        after = None if stand_in is None else with_checksum(address, codec.encode(stand_in))
        # Count the record in the index, because another process may do the recount.
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
                "the record %s of %s is corrupt and was dropped; further corrupt records of this space are counted, "
                "but not logged",
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
            # Invalidate the records even after an error, because the commit may have taken effect.
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
