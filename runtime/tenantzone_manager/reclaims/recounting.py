"""Recounts the bytes of accounts and the children of blocks, because both still include dropped corrupt records."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.changing import change_blocks
from tenantzone_manager.core import books
from tenantzone_manager.core.draft import Draft, with_steps
from tenantzone_manager.core.quota import Account, Charge
from tenantzone_manager.core.records import Block
from tenantzone_manager.core.recounting import Counts, Pass
from tenantzone_manager.index.backend import Address, Commit
from tenantzone_manager.index.checksums import CorruptRecord
from tenantzone_manager.index.meta_index import Found, MetaIndex
from tenantzone_manager.storages.types import STORAGE_TYPES
from tenantzone_manager.turns import IN_BACKGROUND, READ_AT_ONCE, WRITE_AT_ONCE, Turns, parts_of

_log = logging.getLogger(__name__)

_MOST_SKIPPED: Final = 60


class Recount:
    """Counts bytes and children in all records, and corrects the accounts and blocks whose counts differ.

    Records are read in parts while other calls change them. Changes by this process to records that were already read
    are added to the sums. Changes by other processes can't be added, so if the index is shared and anything has changed
    during a recount, the recount is repeated later.

    All spaces of blocks are read, even those of instances whose own records are lost, because their blocks still occupy
    storages.

    Args:
        index: the index with the records and accounts.
        catalog: all instances and storages.
        turns: makes long recounts wait for their turns.
    """

    def __init__(self, index: MetaIndex, catalog: Catalog, turns: Turns) -> None:
        self._index = index
        self._catalog = catalog
        self._turns = turns
        self._counts = Counts((), spaces.owner_of)
        self._is_counting = False
        self._is_spoilt = False
        self._to_skip = 0
        """Number of calls to skip before the next recount: a backoff after other processes disturbed a recount."""
        self._skipped = 0
        index.on_record(self._changed)
        index.on_change(self._replaced)

    async def recount_if_needed(self) -> int:
        """Recount if any process has dropped a corrupt record since the last recount.

        Returns:
            The number of corrected accounts and blocks.

        Raises:
            IndexUnavailable: the index does not answer.
        """
        if self._skipped < self._to_skip:
            self._skipped += 1
            return 0
        if await self._dropped():
            return await self.recount()
        return 0

    async def recount(self) -> int:
        """Read all records, and correct the accounts and blocks that do not match them.

        Corrections end as soon as another process has changed the index.

        Returns:
            The number of corrected accounts and blocks.

        Raises:
            IndexUnavailable: the index does not answer.
        """
        backend = self._index.backend
        dropped = await self._dropped()
        heard = await backend.changes_heard()
        self._counts = Counts(await backend.spaces("blocks"), spaces.owner_of)
        self._is_counting, self._is_spoilt = True, False
        corrected = 0
        try:
            while self._counts.left:
                await self._turns.take(IN_BACKGROUND)
                await self._look_on(self._counts.left[-1])
            chains = self._chains()
            for part in parts_of(len(chains), READ_AT_ONCE):
                await self._turns.take(IN_BACKGROUND)
                corrected += await self._correct(chains[part], heard)
            self._is_spoilt |= await backend.changes_heard() != heard
            if not self._is_spoilt:
                corrected += await self._correct_children()
        finally:
            self._is_counting = False
        if self._is_spoilt:
            self._skipped, self._to_skip = 0, min(2 * self._to_skip + 1, _MOST_SKIPPED)
        else:
            self._to_skip = 0
            if dropped:
                await backend.commit(Commit(charges=[Charge((books.DROPPED,), deleting=-dropped)]))
        return corrected

    async def _dropped(self) -> int:
        """Returns the number of corrupt records that were dropped since the last recount."""
        return (await self._index.account(books.DROPPED)).deleting

    def _chains(self) -> list[tuple[str, ...]]:
        """Returns the chains of accounts. The first account of each chain must be compared with the records."""
        known = map(spaces.blocks_of, self._catalog.instances.values())
        owners = {spaces.owner_of(space) for space in (*known, *self._counts.spaces)}
        chains = {books.chain(owner, where) for owner in owners for where in STORAGE_TYPES}
        chains |= {(books.storage_account(name),) for name in self._catalog.storages}
        return sorted(chains.union(self._counts.used))

    async def _look_on(self, at: Pass) -> None:
        """Read the next records of a pass."""
        found, following = await self._index.backend.scan(at.space, self._counts.last, READ_AT_ONCE)
        corrupt = []
        for key, stored in found:
            try:
                block = self._index.decode(Address(at.space, key), stored)
            except CorruptRecord:
                corrupt.append(key)
            else:
                self._counts.add(at, key, block)
        self._counts.go_on(following)
        if corrupt:
            # Reading a corrupt record drops it from the index.
            await self._index.get_stored(at.space, corrupt)

    def _changed(self, address: Address, before: Any, after: Any) -> None:
        # A shared store counts all changes, including those by this process, in changes_heard().
        if self._is_counting and not self._index.backend.is_shared and address.space.startswith("blocks/"):
            self._counts.change(address.space, address.key, before, after)

    def _replaced(self, space: str, _: Collection[bytes]) -> None:
        self._is_spoilt |= not space

    async def _correct(self, chains: Sequence[tuple[str, ...]], heard: int) -> int:
        """Correct the first account of each chain; returns the number of corrected accounts."""
        found = await self._index.accounts([chain[0] for chain in chains])
        # If the store is not shared, no account can have changed since the store answered.
        corrections = [_correction(chain, found, self._counts.used) for chain in chains]
        # If the store is shared, this call waits for notifications of all changes made before the store answered.
        self._is_spoilt |= await self._index.backend.changes_heard() != heard
        wrong = [charge for charge in corrections if charge.used or charge.deleting]
        if self._is_spoilt:
            return 0
        for charge in wrong:
            await self._index.backend.commit(Commit(charges=[charge]))
            _log.info(
                "corrected the bytes of %s by %+d used, %+d being deleted",
                *(charge.chain[0], charge.used, charge.deleting),
            )
        return len(wrong)

    async def _correct_children(self) -> int:
        """Correct the counts of children in blocks; returns the number of corrected blocks."""
        corrected = 0
        for space, steps in list(self._counts.children.items()):
            keys = list(steps)
            for part in parts_of(len(keys), WRITE_AT_ONCE):
                await self._turns.take(IN_BACKGROUND)
                made: list[bytes] = []
                await change_blocks(self._index, space, keys[part], _with_steps(keys[part], steps, made))
                corrected += len(made)
        if corrected:
            _log.info("corrected the number of child blocks in %d blocks", corrected)
        return corrected


def _with_steps(
    keys: Sequence[bytes], steps: Mapping[bytes, Mapping[str, int]], made: list[bytes]
) -> Callable[[Draft, Found], None]:
    """Returns a function that corrects ``children`` of blocks; ``made`` receives the keys of the corrected blocks."""

    def change(draft: Draft, _: Found) -> None:
        made.clear()
        for key in keys:
            block: Block | None = draft.get(key)
            # If the store is not shared, each change updates ``steps``, which may no longer contain the key.
            if block is not None and key in steps:
                draft.put(key, replace(block, children=with_steps(block.children, steps[key])))
                made.append(key)

    return change


def _correction(
    chain: tuple[str, ...],
    accounts: Mapping[str, Account],
    sums: Mapping[tuple[str, ...], tuple[int, int]],
) -> Charge:
    account = accounts.get(chain[0], Account())
    used, deleting = sums.get(chain, (0, 0))
    return Charge(chain, used - account.used, deleting - account.deleting, is_correction=True)
