"""Placement: chooses the first of the group's available storages that has room for a new block."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenantzone_manager.core.books import Owner, chain, storage_account
from tenantzone_manager.core.quota import UNLIMITED, Account, Charge, charged


@dataclass(frozen=True, slots=True)
class Candidate:
    """A storage that can be written to now."""

    name: str
    type: str


def accounts_of(owner: Owner, candidates: Sequence[Candidate]) -> list[str]:
    """Returns the names of the accounts that :func:`place` needs."""
    names = {name for candidate in candidates for name in chain(owner, candidate.type)}
    return sorted(names | {storage_account(candidate.name) for candidate in candidates})


def bytes_that_fit(owner: Owner, candidate: Candidate, accounts: Mapping[str, Account]) -> int | None:
    """Returns how many more bytes the instance may write to a storage; None means no limit.

    The instance can always use its reserved bytes. Beyond its reservation, it can use unreserved bytes of its group.
    """
    leaf, *above = chain(owner, candidate.type)
    own = accounts.get(leaf, Account())
    promised = max(0, own.committed - own.used)
    rooms = [accounts.get(name, Account()).room(promised) for name in above]
    rooms.append(accounts.get(storage_account(candidate.name), Account()).room())
    if own.limit != UNLIMITED:
        rooms.append(max(0, own.limit - own.used))
    return min((room for room in rooms if room is not None), default=None)


def place(
    sizes: Sequence[int], owner: Owner, candidates: Sequence[Candidate], accounts: Mapping[str, Account]
) -> list[Candidate | None]:
    """Returns the storage for each block, or None for a block for which no storage has room.

    Args:
        sizes: bytes of each block, in prefix order.
        owner: owner of the blocks.
        candidates: the group's available storages, in order of preference.
        accounts: the current accounts with the names that ``accounts_of`` returns.
    """
    places: list[Candidate | None] = []
    left = list(candidates)
    room = bytes_that_fit(owner, left[0], accounts) if left else None
    taken = 0
    for size in sizes:
        while left and room is not None and taken + size > room:
            accounts = _with(accounts, owner, left.pop(0), taken)
            taken = 0
            room = bytes_that_fit(owner, left[0], accounts) if left else None
        places.append(left[0] if left else None)
        taken += size
    return places


def _with(accounts: Mapping[str, Account], owner: Owner, candidate: Candidate, taken: int) -> dict[str, Account]:
    """Returns the accounts as they will be after ``taken`` bytes are placed in a storage.

    These bytes also count towards the group's total, which leaves less room in storages of other types.
    """
    return {
        **accounts,
        **charged(
            accounts, [Charge(chain(owner, candidate.type), taken), Charge((storage_account(candidate.name),), taken)]
        ),
    }
