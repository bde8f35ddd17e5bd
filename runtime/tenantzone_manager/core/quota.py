"""Quotas as a tree of accounts with reserved and used bytes, from an instance in a storage type up to its group.

The committed bytes of a leaf account are the larger of its used and reserved bytes. The committed bytes of any other
account are the sum over its leaves. A charge succeeds only if no account's committed bytes exceed its limit, so an
instance can't use bytes that are reserved for another instance. Without quotas, nothing is limited or evicted.
"""

from collections.abc import Mapping, Sequence

import msgspec

UNLIMITED = -1


class Account(msgspec.Struct, frozen=True, array_like=True):
    """An account. All numbers are bytes."""

    used: int = 0
    """Bytes of locations in any state, including locations that are being written or deleted."""
    deleting: int = 0
    """Bytes of locations that are being deleted; ``used`` includes them."""
    committed: int = 0
    """The larger of ``used`` and ``reserved``; for an account with child accounts, the sum over its leaves."""
    reserved: int = 0
    limit: int = UNLIMITED

    @property
    def live(self) -> int:
        """Bytes of locations that can be read or are being written."""
        return self.used - self.deleting

    def room(self, promised: int = 0) -> int | None:
        """Returns how many more bytes a child account may use; None means no limit.

        Args:
            promised: number of bytes that are reserved for the child account and not used yet.
        """
        if self.limit == UNLIMITED:
            return None
        return max(0, min(self.limit - self.committed + promised, self.limit - self.used))


class Charge(msgspec.Struct, frozen=True, array_like=True):
    """A change of the bytes of an account and of all accounts above it."""

    chain: tuple[str, ...]
    """Names of the account and of all accounts above it, from the bottom up."""
    used: int = 0
    deleting: int = 0
    is_correction: bool = False
    """Whether this charge corrects a wrong count. A correction may exceed limits, because the bytes are in use."""


class Terms(msgspec.Struct, frozen=True, array_like=True):
    """The new reservation and limit of an account, in bytes."""

    chain: tuple[str, ...]
    reserved: int = 0
    limit: int = UNLIMITED


class OverLimit(Exception):
    """A charge would exceed an account's limit; nothing was changed."""

    def __init__(self, account: str) -> None:
        super().__init__(f"the charge would exceed the limit of {account}")
        self.account = account


def together(charges: Sequence[Charge]) -> list[Charge]:
    """Returns one merged charge per chain, because a write has many blocks in few storages."""
    sums: dict[tuple[str, ...], tuple[int, int]] = {}
    for charge in charges:
        used, deleting = sums.get(charge.chain, (0, 0))
        sums[charge.chain] = used + charge.used, deleting + charge.deleting
    return [Charge(chain, *both) for chain, both in sums.items() if any(both)]


def charged(accounts: Mapping[str, Account], charges: Sequence[Charge]) -> dict[str, Account]:
    """Returns the changed accounts after all of the charges.

    Raises:
        OverLimit: an account would exceed its limit. Charges that release bytes or correct a count never raise this.
    """
    after: dict[str, Account] = {}
    for charge in charges:
        leaf, *above = charge.chain
        old = after.get(leaf) or accounts.get(leaf, Account())
        used = old.used + charge.used
        growth = max(used, old.reserved) - old.committed
        is_limited = charge.used > 0 and not charge.is_correction
        if is_limited and old.limit != UNLIMITED and used > old.limit:
            raise OverLimit(leaf)
        after[leaf] = Account(used, old.deleting + charge.deleting, old.committed + growth, old.reserved, old.limit)
        for name in above:
            old = after.get(name) or accounts.get(name, Account())
            if is_limited and _passes(old, charge.used, growth):
                raise OverLimit(name)
            after[name] = Account(
                old.used + charge.used,
                old.deleting + charge.deleting,
                old.committed + growth,
                old.reserved,
                old.limit,
            )
    return after


def _passes(account: Account, used: int, growth: int) -> bool:
    """Returns whether a charge would make an account exceed its limit.

    A new reservation may raise the committed bytes above the limit, because it can't free bytes in use. Charges that
    commit more bytes then fail until enough bytes are freed.
    """
    if account.limit == UNLIMITED:
        return False
    return account.used + used > account.limit or (growth > 0 and account.committed + growth > account.limit)


def with_terms(accounts: Mapping[str, Account], all_terms: Sequence[Terms]) -> dict[str, Account]:
    """Returns the changed accounts after these terms took effect, regardless of the bytes in use.

    For an account with child accounts, ``Terms.chain`` must contain only its own name, and the terms may set a limit
    but no reservation.
    """
    after: dict[str, Account] = {}
    for terms in all_terms:
        leaf, *above = terms.chain
        old = after.get(leaf) or accounts.get(leaf, Account())
        committed = max(old.used, terms.reserved) if above else old.committed
        growth = committed - old.committed
        after[leaf] = Account(old.used, old.deleting, committed, terms.reserved, terms.limit)
        for name in above:
            old = after.get(name) or accounts.get(name, Account())
            after[name] = msgspec.structs.replace(old, committed=old.committed + growth)
    return after
