"""Removals of removed and purged zones' instances from the manager, retried until all instances are gone."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tenantzone_contract.cache.cache_names import is_instance_of, is_since_purge
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.shared.manager.client import ManagerClient, ManagerError
from tenantzone_runtime.shared.manager.threads import Ended, Work
from tenantzone_runtime.shared.spaces import Space

AGAIN_SECONDS: Final = 1.0
"""Seconds between attempts. Several may be needed, since the manager keeps chunks until all leases have expired."""


@dataclass(eq=False, slots=True)
class _Going:
    """Instances of a tenant to remove."""

    receipt: Receipt
    goes: Callable[[str], bool]
    """Returns whether the instance with this name must be removed."""
    space: Space | None
    """The space to which this engine may still be writing, if any."""
    is_told: bool
    """Whether there is a receipt even if nothing was removed."""
    due: float = 0.0
    is_under_way: bool = False


class Removing:
    """Removes instances of tenants from the manager.

    Args:
        client: calls the manager.
        run: runs work on a thread.
        call_seconds: timeout of a call to the manager in seconds.
        heard: called with the error, or None, of each attempt.
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
        """Whether any removals are pending."""
        return bool(self._going)

    def is_going(self, instance: str, tenant: str) -> bool:
        """Returns whether an instance of a tenant is about to be removed, including chunks stored in it meanwhile."""
        return any(each.goes(instance) for each in self._going.get(tenant, ()))

    def add_all(self, tenant: str, space: Space | None) -> None:
        """Remove all of a tenant's instances, because its zone was removed, or may not store any more.

        Args:
            tenant: the tenant.
            space: a space whose transfers must end before the removal; None if there is no such space.
        """
        self._add(_Going(Receipt(tenant, "", 0), lambda name: is_instance_of(name, tenant), space, False))

    def add_before(self, tenant: str, purge: str, space: Space | None, *, is_told: bool) -> None:
        """Remove all of a tenant's instances that may have data from before a purge.

        Args:
            tenant: the tenant.
            purge: id of the purge.
            space: a space whose transfers must end before the removal; None if there is no such space.
            is_told: whether there is a receipt even if nothing was removed.
        """

        def goes(name: str) -> bool:
            return is_instance_of(name, tenant) and not is_since_purge(name, purge)

        self._add(_Going(Receipt(tenant, purge, 0), goes, space, is_told))

    def add_one(self, space: Space) -> None:
        """Remove only the instance of a space."""
        self._add(_Going(Receipt(space.tenant, "", 0), lambda name: name == space.instance, space, False))

    def _add(self, going: _Going) -> None:
        self._going.setdefault(going.receipt.tenant, []).append(going)

    def go_on(self) -> None:
        """Begin the removals that are due."""
        now = time.monotonic()
        for going in [each for some in self._going.values() for each in some]:
            if not going.is_under_way and now >= going.due and not (going.space and going.space.transfers):
                going.is_under_way = True
                self._begin(going)

    def take_receipts(self) -> list[Receipt]:
        """Returns the receipts that were completed since the last call."""
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
        # Each chunk was a single object.
        receipt.files = receipt.chunks
        receipt.is_complete = True
        if going.is_told or receipt.chunks:
            self._receipts.append(receipt)

    def _remove(self, going: _Going) -> list[str]:
        """Remove as many of the instances as possible. Returns the names of the remaining instances."""
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
