"""What has to go from the manager: a zone that is over, what a purge names, what is too old; tried until it is gone."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tenantzone_contract.cache_names import is_instance_of
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.shared.client import ManagerClient, ManagerError
from tenantzone_runtime.shared.spaces import Space
from tenantzone_runtime.shared.threads import Ended, Work

AGAIN_SECONDS: Final = 1.0
"""After which what could not go is tried again: until no reader can be left, the manager keeps the bytes."""


@dataclass(eq=False, slots=True)
class _Going:
    """All of a tenant's instances but those that are kept."""

    receipt: Receipt
    space: Space | None
    """What this engine may still be writing to."""
    due: float = 0.0
    is_under_way: bool = False


class Removing:
    """Has instances go, one tenant after the other.

    Args:
        client: asks the manager.
        run: has a thread do so.
        kept: the instance of a tenant's zone that stays now; empty: none.
        call_seconds: that a call of the manager may take.
        heard: is told what came of it.
    """

    def __init__(
        self,
        client: ManagerClient,
        run: Callable[[Work, Ended], None],
        kept: Callable[[str], str],
        call_seconds: float,
        heard: Ended,
    ) -> None:
        self._client = client
        self._run = run
        self._kept = kept
        self._seconds = call_seconds
        self._heard = heard
        self._going: list[_Going] = []
        self._receipts: list[Receipt] = []

    @property
    def has_work(self) -> bool:
        """Whether anything has to go."""
        return bool(self._going)

    def add(self, tenant: str, purge: str, space: Space | None) -> None:
        """Have all of a tenant's instances go, but the one that is kept by then.

        Args:
            tenant: whose.
            purge: its id; empty: the zone went, or keeps nothing any more.
            space: nothing goes before nothing is on its way to it.
        """
        self._going.append(_Going(Receipt(tenant, purge, 0), space))

    def go_on(self) -> None:
        """Have go what is due."""
        now = time.monotonic()
        for going in self._going:
            if not going.is_under_way and now >= going.due and not (going.space and going.space.transfers):
                going.is_under_way = True
                self._begin(going)

    def take_receipts(self) -> list[Receipt]:
        """The receipts that were completed since the last call."""
        receipts, self._receipts = self._receipts, []
        return receipts

    def _begin(self, going: _Going) -> None:
        kept = self._kept(going.receipt.tenant)
        found: list[str] = []

        def work() -> None:
            found.extend(self._remove(going.receipt, kept))

        def ended(error: Exception | None) -> None:
            self._heard(error)
            going.is_under_way = False
            if error is not None or found:
                going.due = time.monotonic() + AGAIN_SECONDS
                return
            self._going.remove(going)
            # Each chunk was one object.
            going.receipt.files = going.receipt.chunks
            going.receipt.is_complete = True
            self._receipts.append(going.receipt)

        self._run(work, ended)

    def _remove(self, receipt: Receipt, kept: str) -> list[str]:
        """Have go what can; returns the names of instances that are still there."""
        left = []
        for use in self._client.list_instances(self._seconds).instances:
            name = use.instance.name
            if name == kept or not is_instance_of(name, receipt.tenant):
                continue
            try:
                receipt.chunks += self._client.trim_cache(name, 0.0, self._seconds).blocks
                self._client.unregister_instance(name, self._seconds)
            except ManagerError as error:
                if error.is_failure:
                    raise
                if error.code != "NOT_FOUND":
                    left.append(name)
        return left
