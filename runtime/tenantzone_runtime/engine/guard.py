"""The guard: no request is ever served from a block that is not its zone's.

Whatever adds blocks to a request is checked as it does: prefix hits and new blocks against the owners in the ledger.
What vLLM keeps in block tables is checked again, one table each step, in case that it was changed elsewhere. A request
that is caught is failed, with an error to its client and a record in the audit journal; the engine goes on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vllm.v1.request import Request, RequestStatus

from tenantzone_runtime.engine.requests import zone_of
from tenantzone_runtime.zones.audit import Violation
from tenantzone_runtime.zones.zone import Zone

if TYPE_CHECKING:
    from tenantzone_runtime.engine.room import RoomMaker
    from tenantzone_runtime.engine.scheduling import ZoneAwareScheduler

logger = logging.getLogger(__name__)


class ForeignBlockError(RuntimeError):
    """A request was about to use a block of another zone. It must never be served."""

    def __init__(self, block_id: int, zone: Zone | None) -> None:
        name = "no zone" if zone is None else f"zone {zone.spec.tenant}"
        super().__init__(f"block {block_id} does not belong to {name}")
        self.block_id = block_id


class Guard:
    """Fails requests that were caught with a foreign block.

    Args:
        scheduler: whose requests.
        room: sends running ones back.
    """

    def __init__(self, scheduler: ZoneAwareScheduler, room: RoomMaker) -> None:
        self._scheduler = scheduler
        self._room = room
        self._manager = scheduler.kv_cache_manager
        self._owner = scheduler.block_pool.ledger.owner
        self._next = 0

    def check_a_table(self) -> None:
        """Check the block table of one running request, the next one with each call."""
        running = self._scheduler.running
        if not running:
            return
        self._next = (self._next + 1) % len(running)
        request = running[self._next]
        zone = zone_of(request)
        for block in self._manager.get_blocks(request.request_id).blocks[0]:
            if self._owner[block.block_id] is not zone and not block.is_null:
                self.fail(request, block.block_id)
                return

    def fail_condemned(self) -> None:
        """Fail the requests that were caught in the step that has just been scheduled."""
        for request, error in self._manager.take_condemned():
            self.fail(request, error.block_id)

    def fail(self, request: Request, block_id: int) -> None:
        """End a request with an error. It gives back the blocks that are its zone's, and no other."""
        zone, owner = zone_of(request), self._owner[block_id]
        names = [None if each is None else each.spec.tenant for each in (zone, owner)]
        logger.error(
            "request %s of zone %s is failed: block %d belongs to zone %s",
            request.request_id,
            names[0],
            block_id,
            names[1],
            extra={"zone": zone.spec.name, "tenant": zone.spec.tenant} if zone is not None else None,
        )
        self._scheduler.tenancy.ledger.trail.note(Violation(names[0], block_id, names[1]))
        if zone is not None:
            zone.counters.violations += 1
        self._manager.forget_foreign_blocks(request)
        if request.status == RequestStatus.RUNNING:
            self._room.preempt(request, "violation", None)
        else:
            self._manager.free(request)
        self._scheduler.end_with_error(request)
