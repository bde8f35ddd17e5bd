"""The interface of the stores that can hold the index."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tenantzone_manager.core.books import RankChange
from tenantzone_manager.core.quota import Account, Charge, Terms


class Address(NamedTuple):
    """The address of a record."""

    space: str
    """Name of a space, which contains, for example, the blocks of one instance."""
    key: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """A record as it was read, and its new value. None means that the record does not exist."""

    address: Address
    before: bytes | None
    after: bytes | None


@dataclass(slots=True)
class Commit:
    """Changes that are made atomically."""

    changes: list[Change] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    ranks: list[RankChange] = field(default_factory=list)
    terms: list[Terms] = field(default_factory=list)

    @property
    def takes_room(self) -> bool:
        """Whether the commit charges additional bytes. Other commits are allowed even if the store has no room left."""
        return any(charge.used > 0 and not charge.is_correction for charge in self.charges)


class Conflict(Exception):
    """A record has changed since it was read; the commit changed nothing."""


class IndexUnavailable(Exception):
    """The store does not answer. A commit that raised this error may still have taken effect."""


class IndexFull(IndexUnavailable):
    """The store has no room for this commit, and has changed nothing. Calls that need no room still work."""


class IndexUnusable(IndexUnavailable):
    """The store's file is not an index, so retrying is useless."""


Listener = Callable[[str, Sequence[bytes]], None]
"""Called with the space and keys of changed records. If there are no keys, any record may have changed."""


class IndexBackend(ABC):
    """A store of records in spaces, of accounts, and of ranks. Each method may raise :class:`IndexUnavailable`."""

    is_shared: bool
    """Whether other processes may change the store, too."""

    @abstractmethod
    async def get(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Returns the records with these keys, and None for missing records."""

    @abstractmethod
    async def commit(self, commit: Commit) -> None:
        """Apply all changes atomically.

        Raises:
            Conflict: a record has changed since it was read.
            OverLimit: an account has no room for its charge.
            IndexFull: the commit needs room, and the store has none.
        """

    @abstractmethod
    async def keep_reserve(self) -> str:
        """Check whether the store has room, and keep a reserve for commits that add no bytes.

        Returns:
            A message that says why commits that need room are refused, and how to resolve this; empty if not refused.
        """

    @abstractmethod
    async def scan(self, space: str, cursor: bytes, count: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Returns about ``count`` records of a space, and the cursor for the next call.

        A scan begins with an empty cursor, and ends when the returned cursor is empty. A record that exists during the
        whole scan is returned at least once.
        """

    @abstractmethod
    async def random_sample(self, space: str, count: int) -> list[tuple[bytes, bytes]]:
        """Returns up to ``count`` distinct records, chosen roughly uniformly at random."""

    @abstractmethod
    async def count(self, space: str) -> int:
        """Returns the number of records in a space."""

    @abstractmethod
    async def spaces(self, kind: str) -> list[str]:
        """Returns the names of the spaces that begin with ``KIND/``. Some of them may no longer have records."""

    async def changes_heard(self) -> int:
        """Wait until this process has been notified of all changes made so far; returns the number of block changes.

        The number includes changes by this process. An interruption counts as one change, because notifications may be
        lost during an interruption. A store that is not shared returns 0.
        """
        return 0

    @abstractmethod
    async def lowest(
        self, rank: str, count: int, until: float, above: float = float("-inf")
    ) -> list[tuple[bytes, float]]:
        """Returns at most ``count`` members of a rank, lowest score first, with ``above`` < score <= ``until``."""

    @abstractmethod
    async def accounts(self, names: Sequence[str]) -> dict[str, Account]:
        """Returns the accounts with these names that exist."""

    @abstractmethod
    async def lead(self, name: str, seconds: float) -> bool:
        """Try to become leader of all processes that share the store, or to renew the leadership.

        Args:
            name: name of the process.
            seconds: duration of the leadership.

        Returns:
            Whether ``name`` is the leader.
        """

    @abstractmethod
    async def size(self) -> int:
        """Returns the number of bytes that the store uses, on disk or in memory."""

    @abstractmethod
    async def start(self, listener: Listener) -> None:
        """Open the store. Until the store is closed, the listener is called for changes by other processes."""

    @abstractmethod
    async def close(self) -> None:
        """Close the store without losing any commit."""
