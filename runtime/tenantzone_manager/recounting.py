"""Recounts accounts and children: a corrupt record that was dropped is still charged, and still counted as a child."""

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
    """Compares accounts, and the counts of children in blocks, with the records, and corrects both.

    An error stays the same while records change, so they are read in parts, and a change of a record that was read is
    added. If other processes may change the index, their changes can't be added. A recount during which anything has
    changed is then repeated later.

    It reads all spaces of blocks, also those of instances whose own records are lost: their blocks use storages.

    Args:
        index: has the records and the accounts.
        catalog: all instances and storages.
        turns: the turns in which records are read.
    """

    def __init__(self, index: MetaIndex, catalog: Catalog, turns: Turns) -> None:
        self._index = index
        self._catalog = catalog
        self._turns = turns
        self._counts = Counts((), spaces.owner_of)
        self._is_counting = False
        self._is_spoilt = False
        self._is_first = not index.backend.is_shared
        """Whether this process has not recounted yet. An earlier release dropped records without a note."""
        self._to_skip = 0
        """The number of requests to skip after a recount that others spoilt; it grows each time."""
        self._skipped = 0
        index.on_record(self._changed)
        index.on_change(self._replaced)

    async def recount_if_needed(self) -> int:
        """Recount if any process has dropped a record since the last recount.

        Returns:
            The number of accounts and blocks that were corrected.

        Raises:
            IndexUnavailable: the index does not answer.
        """
        if self._skipped < self._to_skip:
            self._skipped += 1
            return 0
        if self._is_first or await self._dropped():
            return await self.recount()
        return 0

    async def recount(self) -> int:
        """Read all records, and correct the accounts and blocks that do not match them.

        Returns:
            The number of accounts and blocks that were corrected. Once others have changed the index, no more are.

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
            self._is_first, self._to_skip = False, 0
            if dropped:
                await backend.commit(Commit(charges=[Charge((books.DROPPED,), deleting=-dropped)]))
        return corrected

    async def _dropped(self) -> int:
        """Returns the number of records that were dropped since the last recount."""
        return (await self._index.account(books.DROPPED)).deleting

    def _chains(self) -> list[tuple[str, ...]]:
        """Returns the accounts to compare, each with those above it."""
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
            # A read drops a corrupt record.
            await self._index.get_stored(at.space, corrupt)

    def _changed(self, address: Address, before: Any, after: Any) -> None:
        # A shared store reports all changes, those of this process included.
        if self._is_counting and not self._index.backend.is_shared and address.space.startswith("blocks/"):
            self._counts.change(address.space, address.key, before, after)

    def _replaced(self, space: str, _: Collection[bytes]) -> None:
        self._is_spoilt |= not space

    async def _correct(self, chains: Sequence[tuple[str, ...]], heard: int) -> int:
        """Correct the first account of each chain; returns the number of corrected ones."""
        found = await self._index.accounts([chain[0] for chain in chains])
        # With a store of one process, nothing can change between its answer and this.
        corrections = [_correction(chain, found, self._counts.used) for chain in chains]
        # Now all changes before that answer are known.
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
            _log.info("%d blocks had wrong counts of the blocks after them", corrected)
        return corrected


def _with_steps(
    keys: Sequence[bytes], steps: Mapping[bytes, Mapping[str, int]], made: list[bytes]
) -> Callable[[Draft, Found], None]:
    """Returns a change that corrects the blocks' children; ``made`` receives the keys of corrected blocks."""

    def change(draft: Draft, _: Found) -> None:
        made.clear()
        for key in keys:
            block: Block | None = draft.get(key)
            # With a store of one process, ``steps`` follows all changes, and may no longer have the key.
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
