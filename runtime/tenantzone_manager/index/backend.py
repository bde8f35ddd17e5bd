"""What the index asks of a store."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tenantzone_manager.core.books import RankChange
from tenantzone_manager.core.quota import Account, Charge, Terms


class Address(NamedTuple):
    """Where a record is."""

    space: str
    """Such as the blocks of one instance."""
    key: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """A record as it was read, and as it shall be; None: none."""

    address: Address
    before: bytes | None
    after: bytes | None


@dataclass(slots=True)
class Commit:
    """Changes that are made together or not at all."""

    changes: list[Change] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    ranks: list[RankChange] = field(default_factory=list)
    terms: list[Terms] = field(default_factory=list)

    @property
    def takes_room(self) -> bool:
        """Whether more is stored afterwards: all other commits pass where the store has no room left."""
        return any(charge.used > 0 for charge in self.charges)


class Conflict(Exception):
    """A record is no longer what it was when it was read; nothing was changed."""


class IndexUnavailable(Exception):
    """The store does not answer. A commit that raised this was made, or was not."""


class IndexFull(IndexUnavailable):
    """The store has no room for a commit that takes some; nothing was changed. It answers all that takes none."""


class IndexUnusable(IndexUnavailable):
    """The store's file has other content than an index; to try again is of no use."""


Listener = Callable[[str, Sequence[bytes]], None]
"""Is told the space and the keys of records that were changed; without keys: any may have been."""


class IndexBackend(ABC):
    """A store of records in spaces, of accounts, and of ranks; each method may raise :class:`IndexUnavailable`."""

    is_shared: bool
    """Whether other processes change it, too."""

    @abstractmethod
    async def get(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The records with these keys; None where there is none."""

    @abstractmethod
    async def commit(self, commit: Commit) -> None:
        """Make changes, all or none.

        Raises:
            Conflict: a record is another than it was.
            OverLimit: an account has no room for its charge.
            IndexFull: the commit takes room, and the store has none.
        """

    @abstractmethod
    async def keep_reserve(self) -> str:
        """Look whether the store has room, and keep a reserve of it for commits that take none.

        Returns:
            Why commits that take room are refused now, and what to do about it; empty: they are not.
        """

    @abstractmethod
    async def scan(self, space: str, cursor: bytes, count: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """About so many records of a space, and the cursor of the next ones; both cursors are empty at the ends.

        What is there all the time is returned at least once.
        """

    @abstractmethod
    async def random_sample(self, space: str, count: int) -> list[tuple[bytes, bytes]]:
        """Up to so many different records, about evenly by chance."""

    @abstractmethod
    async def count(self, space: str) -> int:
        """How many records a space has."""

    @abstractmethod
    async def spaces(self, kind: str) -> list[str]:
        """The names of the spaces that begin with ``KIND/``. Some of them may have no records any more."""

    async def changes_heard(self) -> int:
        """Wait until this process has heard of all that was changed so far; returns the number of changes of blocks.

        Its own changes count, too. The number may be too large, where it is not known what has changed. A store of one
        process has nothing to hear of, and returns 0.
        """
        return 0

    @abstractmethod
    async def lowest(
        self, rank: str, count: int, until: float, above: float = float("-inf")
    ) -> list[tuple[bytes, float]]:
        """Returns at most ``count`` members of a rank with their scores above one and up to another, lowest first."""

    @abstractmethod
    async def accounts(self, names: Sequence[str]) -> dict[str, Account]:
        """The accounts that there are of these."""

    @abstractmethod
    async def lead(self, name: str, seconds: float) -> bool:
        """Whether the process of this name leads all that use the store; if it does, nobody else for so long."""

    @abstractmethod
    async def size(self) -> int:
        """Bytes that the store takes, on disk or in memory."""

    @abstractmethod
    async def start(self, listener: Listener) -> None:
        """Open it; from now on the listener hears of the changes of other processes."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of it; what was committed is there the next time."""
