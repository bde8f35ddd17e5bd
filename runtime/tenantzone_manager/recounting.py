"""Recounts what instances and storages use: the bytes of a record that was dropped unread are still charged."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.core import books
from tenantzone_manager.core.quota import Account, Charge, OverLimit
from tenantzone_manager.index.backend import Address, Commit
from tenantzone_manager.index.checksums import CorruptRecord
from tenantzone_manager.index.meta_index import MetaIndex
from tenantzone_manager.storages.types import STORAGE_TYPES
from tenantzone_manager.turns import IN_BACKGROUND, READ_AT_ONCE, Turns, parts_of

_log = logging.getLogger(__name__)

_Chain = tuple[str, ...]
_NO_KEY: Final = b""
_MOST_SKIPPED: Final = 60


class Recount:
    """Compares accounts with the records, and corrects them.

    By how much an account is wrong does not depend on when it is looked at. So all records are looked at once, some at
    a time. What changes of those that were looked at is added: this process hears of all changes, unless others change
    the same index. Then a recount in which anything has changed is made again later.

    Args:
        index: has the records and the accounts.
        catalog: all instances and storages.
        turns: in which records are looked at.
    """

    def __init__(self, index: MetaIndex, catalog: Catalog, turns: Turns) -> None:
        self._index = index
        self._catalog = catalog
        self._turns = turns
        self._sums: dict[_Chain, tuple[int, int]] = {}
        self._left: list[str] = []
        """Spaces that are not looked at to their ends, the one that is under way last."""
        self._last = _NO_KEY
        """The key of that one that was looked at last."""
        self._is_counting = False
        self._is_spoilt = False
        self._corrected_at = 0 if index.backend.is_shared else -1
        """How many records had been dropped when accounts were corrected last; -1: by an earlier process, if any."""
        self._skipped = self._to_skip = 0
        """Of the times that it was asked for since others spoilt it; there are more each time."""
        index.on_charges(self._changed)
        index.on_change(lambda space, _: self._note_others(space))

    async def recount_if_needed(self) -> int:
        """Look at all records if one was dropped since the last time, and correct the accounts.

        Returns:
            How many accounts were wrong.

        Raises:
            IndexUnavailable: the index does not answer.
        """
        if self._index.corrupt == self._corrected_at:
            return 0
        if self._skipped < self._to_skip:
            self._skipped += 1
            return 0
        return await self.recount()

    async def recount(self) -> int:
        """Look at all records, and correct the accounts.

        Returns:
            How many accounts were wrong. Those of an index that others changed meanwhile are left as they are.

        Raises:
            IndexUnavailable: the index does not answer.
        """
        dropped = self._index.corrupt
        instances = list(self._catalog.instances.values())
        owners = [spaces.owner_of(spaces.blocks_of(each)) for each in instances]
        chains = [books.chain(owner, where) for owner in owners for where in STORAGE_TYPES]
        chains += [(books.storage_account(name),) for name in self._catalog.storages]
        self._sums, self._left, self._last = {}, [spaces.blocks_of(each) for each in instances], _NO_KEY
        self._is_counting, self._is_spoilt = True, False
        corrected = 0
        try:
            while self._left:
                await self._turns.take(IN_BACKGROUND)
                await self._look_on()
            for part in parts_of(len(chains), READ_AT_ONCE):
                await self._turns.take(IN_BACKGROUND)
                corrected += await self._correct(chains[part])
        finally:
            self._is_counting = False
        if self._is_spoilt:
            self._skipped, self._to_skip = 0, min(2 * self._to_skip + 1, _MOST_SKIPPED)
        else:
            self._corrected_at, self._to_skip = dropped, 0
        return corrected

    async def _look_on(self) -> None:
        space = self._left[-1]
        found, following = await self._index.backend.scan(space, self._last, READ_AT_ONCE)
        owner, corrupt = spaces.owner_of(space), []
        for key, stored in found:
            try:
                block = self._index.decode(Address(space, key), stored)
            except CorruptRecord:
                corrupt.append(key)
            else:
                self._add(books.charges(owner, None, block))
        self._last = following
        if not following:
            self._left.pop()
        if corrupt:
            # Whoever reads such a record drops it.
            await self._index.get_stored(space, corrupt)

    def _changed(self, address: Address, charges: Sequence[Charge]) -> None:
        if not self._is_counting or not charges:
            return
        if self._index.backend.is_shared:
            self._is_spoilt = True
        elif address.space not in self._left or (address.space == self._left[-1] and address.key <= self._last):
            self._add(charges)

    def _note_others(self, space: str) -> None:
        self._is_spoilt |= not space or space.startswith("blocks/")

    def _add(self, charges: Sequence[Charge]) -> None:
        for charge in charges:
            used, deleting = self._sums.get(charge.chain, (0, 0))
            self._sums[charge.chain] = used + charge.used, deleting + charge.deleting

    async def _correct(self, chains: Sequence[_Chain]) -> int:
        """Correct the accounts that these chains begin with; returns how many were wrong."""
        found = await self._index.accounts([chain[0] for chain in chains])
        if self._is_spoilt:
            return 0
        # A store of one process lets nothing change between its answer and this.
        corrections = [_correction(chain, found, self._sums) for chain in chains]
        wrong = [charge for charge in corrections if charge.used or charge.deleting]
        for charge in wrong:
            try:
                await self._index.backend.commit(Commit(charges=[charge]))
            except OverLimit as error:
                _log.warning("%s uses more than was counted: %s", charge.chain[0], error)
            else:
                _log.info("%s uses %d bytes less than was counted", charge.chain[0], -charge.used)
        return len(wrong)


def _correction(chain: _Chain, accounts: Mapping[str, Account], sums: Mapping[_Chain, tuple[int, int]]) -> Charge:
    account = accounts.get(chain[0], Account())
    used, deleting = sums.get(chain, (0, 0))
    return Charge(chain, used - account.used, deleting - account.deleting)
