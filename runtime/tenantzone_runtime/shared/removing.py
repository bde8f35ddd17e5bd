"""Removals from the manager: ended zones, purged and expired chunks; retried until all is gone."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tenantzone_contract.cache_names import is_instance_of, is_since_purge
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.shared.client import ManagerClient, ManagerError
from tenantzone_runtime.shared.spaces import Space
from tenantzone_runtime.shared.threads import Ended, Work

AGAIN_SECONDS: Final = 1.0
"""Seconds between attempts: the manager keeps the bytes until no reader can be left."""


@dataclass(eq=False, slots=True)
class _Going:
    """Instances of a tenant to remove."""

    receipt: Receipt
    goes: Callable[[str], bool]
    """Returns whether the instance with this name is one of them."""
    space: Space | None
    """The space that this engine may still be writing to."""
    is_told: bool
    """Whether there is a receipt even if nothing was removed."""
    due: float = 0.0
    is_under_way: bool = False


class Removing:
    """Removes instances, one tenant after another.

    Args:
        client: calls the manager.
        run: runs work on a thread.
        call_seconds: seconds that a call to the manager may take.
        heard: called with the result of each call.
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
        """Whether there is anything to remove."""
        return bool(self._going)

    def is_going(self, instance: str, tenant: str) -> bool:
        """Returns whether an instance of a tenant is about to be removed, with what is stored in it meanwhile."""
        return any(each.goes(instance) for each in self._going.get(tenant, ()))

    def add_all(self, tenant: str, space: Space | None) -> None:
        """Remove all of a tenant's instances: the zone was removed, or keeps nothing any more.

        Args:
            tenant: the tenant.
            space: removal waits for this space's transfers to end; None for none.
        """
        self._add(_Going(Receipt(tenant, "", 0), lambda name: is_instance_of(name, tenant), space, False))

    def add_before(self, tenant: str, purge: str, space: Space | None, *, is_told: bool) -> None:
        """Remove all of a tenant's instances that may have data from before a purge.

        Args:
            tenant: the tenant.
            purge: the id of the purge.
            space: removal waits for this space's transfers to end; None for none.
            is_told: whether there is a receipt even if nothing was removed.
        """

        def goes(name: str) -> bool:
            return is_instance_of(name, tenant) and not is_since_purge(name, purge)

        self._add(_Going(Receipt(tenant, purge, 0), goes, space, is_told))

    def add_one(self, space: Space) -> None:
        """Remove a space's own instance, and no other."""
        self._add(_Going(Receipt(space.tenant, "", 0), lambda name: name == space.instance, space, False))

    def _add(self, going: _Going) -> None:
        self._going.setdefault(going.receipt.tenant, []).append(going)

    def go_on(self) -> None:
        """Remove what is due."""
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
        # Each chunk was one object.
        receipt.files = receipt.chunks
        receipt.is_complete = True
        if going.is_told or receipt.chunks:
            self._receipts.append(receipt)

    def _remove(self, going: _Going) -> list[str]:
        """Remove what is possible. Returns the names of instances that remain."""
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
