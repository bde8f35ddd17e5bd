"""Bytes that are promised and used: accounts in a tree, from an instance in a storage type up to its group.

What an account has committed is what it uses, and at least what it is promised (``reserved``). An account is charged
only if what all accounts below the same limit have committed stays within it, so nobody takes what another one is
promised and does not use yet. A limit that is missing is no limit: an empty table of quotas holds nobody back, and
makes nobody go.
"""

from collections.abc import Mapping, Sequence

import msgspec

UNLIMITED = -1


class Account(msgspec.Struct, frozen=True, array_like=True):
    """All in bytes."""

    used: int = 0
    """By locations in any state: what is being written is used already, what is being deleted still is."""
    deleting: int = 0
    """Of them, what is on its way out."""
    committed: int = 0
    """``used``, or what the account is promised if that is more; of an account with others below it, their sum."""
    reserved: int = 0
    limit: int = UNLIMITED

    @property
    def live(self) -> int:
        """Bytes that serve, or are about to."""
        return self.used - self.deleting

    def room(self, promised: int = 0) -> int | None:
        """Bytes that may still be used by an account below that was promised so many more; None: any number."""
        if self.limit == UNLIMITED:
            return None
        return max(0, min(self.limit - self.committed + promised, self.limit - self.used))


class Charge(msgspec.Struct, frozen=True, array_like=True):
    """A change of an account and of those above it."""

    chain: tuple[str, ...]
    """The account's name, and those above it, upwards."""
    used: int = 0
    deleting: int = 0


class Terms(msgspec.Struct, frozen=True, array_like=True):
    """What an account is promised, and what it may use at most, from now on."""

    chain: tuple[str, ...]
    reserved: int = 0
    limit: int = UNLIMITED


class OverLimit(Exception):
    """A charge would have passed an account's limit; none of its changes was made."""

    def __init__(self, account: str) -> None:
        super().__init__(f"the limit of {account} does not leave room for it")
        self.account = account


def together(charges: Sequence[Charge]) -> list[Charge]:
    """One charge for each account: a write has many blocks, and few places."""
    sums: dict[tuple[str, ...], tuple[int, int]] = {}
    for charge in charges:
        used, deleting = sums.get(charge.chain, (0, 0))
        sums[charge.chain] = used + charge.used, deleting + charge.deleting
    return [Charge(chain, *both) for chain, both in sums.items() if any(both)]


def charged(accounts: Mapping[str, Account], charges: Sequence[Charge]) -> dict[str, Account]:
    """The accounts that change, as they are after all of the charges.

    Raises:
        OverLimit: one of them would pass its limit. What gives bytes back is never refused.
    """
    after: dict[str, Account] = {}
    for charge in charges:
        leaf, *above = charge.chain
        old = after.get(leaf) or accounts.get(leaf, Account())
        used = old.used + charge.used
        growth = max(used, old.reserved) - old.committed
        if charge.used > 0 and old.limit != UNLIMITED and used > old.limit:
            raise OverLimit(leaf)
        after[leaf] = Account(used, old.deleting + charge.deleting, old.committed + growth, old.reserved, old.limit)
        for name in above:
            old = after.get(name) or accounts.get(name, Account())
            if _passes(old, charge.used, growth):
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
    """Whether an account would pass its limit; what was promised while others held all has to wait for them, too."""
    if account.limit == UNLIMITED or used <= 0:
        return False
    return account.used + used > account.limit or (growth > 0 and account.committed + growth > account.limit)


def with_terms(accounts: Mapping[str, Account], all_terms: Sequence[Terms]) -> dict[str, Account]:
    """The accounts that change when these terms take effect, whatever is used at that time.

    An account that has others below it is named alone, and may only be limited.
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
