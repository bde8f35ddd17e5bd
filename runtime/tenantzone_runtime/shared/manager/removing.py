"""Removes the instances of removed and purged zones from the manager, and retries until no such instance is left."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tenantzone_contract.cache.cache_names import is_instance_of, is_since_purge
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.disk.workers import Ended
from tenantzone_runtime.shared.manager.client import ManagerClient, ManagerError
from tenantzone_runtime.shared.manager.threads import Work
from tenantzone_runtime.shared.spaces import Space

AGAIN_SECONDS: Final = 1.0
"""Seconds between two attempts. Several attempts are needed if chunks are leased: the manager keeps them until their
leases expire."""


@dataclass(eq=False, slots=True)
class _Going:
    """A pending removal of a tenant's instances."""

    receipt: Receipt
    goes: Callable[[str], bool]
    """Returns whether the instance with this name must be removed."""
    space: Space | None
    """The space to which this engine may still be writing, if any."""
    is_told: bool
    """Whether a receipt is issued even if nothing was removed."""
    due: float = 0.0
    """Monotonic time of the next attempt."""
    is_under_way: bool = False
    """Whether a thread is making an attempt."""


class Removing:
    """Removes instances of tenants from the manager.

    Args:
        client: calls the manager.
        run: runs a function on a thread.
        call_seconds: timeout of a call to the manager in seconds.
        heard: called after each attempt with the error, or with None if the attempt succeeded.
    """

    def __init__(
        self,
        client: ManagerClient,
        run: Callable[[Work, Ended], None],
        call_seconds: float,
        heard: Ended,
    ) -> None:
        self._client = client
        self._run = run
        self._seconds = call_seconds
        self._heard = heard
        self._going: dict[str, list[_Going]] = {}
        """Pending removals by tenant."""
        self._receipts: list[Receipt] = []

    @property
    def has_work(self) -> bool:
        """Whether removals are pending."""
        return bool(self._going)

    def is_going(self, instance: str, tenant: str) -> bool:
        """Returns whether an instance will be removed, including any chunks that are stored in it until then."""
        return any(each.goes(instance) for each in self._going.get(tenant, ()))

    def add_all(self, tenant: str, space: Space | None) -> None:
        """Schedule the removal of all of a tenant's instances. The zone was removed, or may not store any more.

        Args:
            tenant: the tenant.
            space: a space whose writes must end before the removal; None if there is no such space.
        """
        self._add(_Going(Receipt(tenant, "", 0), lambda name: is_instance_of(name, tenant), space, False))

    def add_before(self, tenant: str, purge: str, space: Space | None, *, is_told: bool) -> None:
        """Schedule the removal of all of a tenant's instances that may have data from before a purge.

        Args:
            tenant: the tenant.
            purge: id of the purge.
            space: a space whose writes must end before the removal; None if there is no such space.
            is_told: whether a receipt is issued even if nothing was removed.
        """

        def goes(name: str) -> bool:
            return is_instance_of(name, tenant) and not is_since_purge(name, purge)

        self._add(_Going(Receipt(tenant, purge, 0), goes, space, is_told))

    def add_one(self, space: Space) -> None:
        """Schedule the removal of one space's instance, and of no other instance of the tenant."""
        self._add(_Going(Receipt(space.tenant, "", 0), lambda name: name == space.instance, space, False))

    def _add(self, going: _Going) -> None:
        self._going.setdefault(going.receipt.tenant, []).append(going)

    def go_on(self) -> None:
        """Start the removals whose time has come and whose spaces have no writes in progress."""
        now = time.monotonic()
        for going in [each for some in self._going.values() for each in some]:
            if not going.is_under_way and now >= going.due and not (going.space and going.space.transfers):
                going.is_under_way = True
                self._begin(going)

    def take_receipts(self) -> list[Receipt]:
        """Returns the receipts of removals that were completed since the last call."""
        receipts, self._receipts = self._receipts, []
        return receipts

    def _begin(self, going: _Going) -> None:
        found: list[str] = []

        def work() -> None:
            found.extend(self._remove(going))

        def ended(error: Exception | None) -> None:
            self._heard(error)
            going.is_under_way = False
            if error is not None or found:
                going.due = time.monotonic() + AGAIN_SECONDS
                return
            self._end(going)

        self._run(work, ended)

    def _end(self, going: _Going) -> None:
        receipt = going.receipt
        others = self._going[receipt.tenant]
        others.remove(going)
        if not others:
            del self._going[receipt.tenant]
        # Each chunk was stored as one object, so the numbers of chunks and files are equal.
        receipt.files = receipt.chunks
        receipt.is_complete = True
        if going.is_told or receipt.chunks:
            self._receipts.append(receipt)

    def _remove(self, going: _Going) -> list[str]:
        """Remove the instances that can be removed now. Returns the names of the instances that are left to remove."""
        left = []
        for use in self._client.list_instances(self._seconds).instances:
            name = use.instance.name
            if not going.goes(name):
                continue
            try:
                going.receipt.chunks += self._client.trim_cache(name, 0.0, self._seconds).blocks
                self._client.unregister_instance(name, self._seconds)
            except ManagerError as error:
                if error.is_failure:
                    raise
                if error.code != "NOT_FOUND":
                    left.append(name)
        return left
