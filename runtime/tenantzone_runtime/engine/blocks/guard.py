"""The guard, which ensures that no request is served from a block of another zone.

The block pool checks the owner of each block that it adds to a request. In addition, each step checks vLLM's block
tables of one running request, in case other code has changed them. If a check fails, the request ends with an error,
the audit journal gets an entry, and the engine continues.
"""

import logging
from collections.abc import Callable, Sequence

from vllm.v1.request import Request, RequestStatus

from tenantzone_runtime.engine.blocks.kv_cache_manager import ZoneKVCacheManager
from tenantzone_runtime.engine.blocks.requests import zone_of
from tenantzone_runtime.zones.audit.events import Violation
from tenantzone_runtime.zones.schedule.arbiter import Arbiter

logger = logging.getLogger(__name__)


class Guard:
    """Fails requests that hold, or were about to get, a block of another zone.

    Args:
        manager: the KV cache manager.
        arbiter: the arbiter, which preempts running requests.
        end_with_error: ends a waiting request with an error.
    """

    def __init__(
        self, manager: ZoneKVCacheManager, arbiter: Arbiter[Request], end_with_error: Callable[[Request], None]
    ) -> None:
        self._manager = manager
        self._arbiter = arbiter
        self._end_with_error = end_with_error
        self._ledger = manager.block_pool.ledger
        self._next = 0

    def check_a_table(self, running: Sequence[Request]) -> None:
        """Check all block tables of one running request. Successive calls check successive requests."""
        if not running:
            return
        self._next = (self._next + 1) % len(running)
        request = running[self._next]
        zone, owner = zone_of(request), self._ledger.owner
        for table in self._manager.get_blocks(request.request_id).blocks:
            for block in table:
                if owner[block.block_id] is not zone and not block.is_null:
                    self.fail(request, block.block_id)
                    return

    def fail_condemned(self) -> None:
        """Fail the requests that were about to get a foreign block in the step that has just been scheduled."""
        for request, error in self._manager.take_condemned():
            self.fail(request, error.block_id)

    def fail(self, request: Request, block_id: int) -> None:
        """End a request with an error, and release only the blocks that belong to the request's zone."""
        zone, owner = zone_of(request), self._ledger.owner[block_id]
        names = [None if each is None else each.name_in_journal for each in (zone, owner)]
        logger.error(
            "request %s of zone %s fails, because block %d belongs to zone %s",
            request.request_id,
            names[0],
            block_id,
            names[1],
            extra={"zone": zone.spec.name, "tenant": zone.spec.tenant} if zone is not None else None,
        )
        self._ledger.trail.note(Violation(names[0], block_id, names[1]))
        if zone is not None:
            zone.counters.violations += 1
        self._manager.forget_foreign_blocks(request)
        if request.status == RequestStatus.RUNNING:
            self._arbiter.preempt(request, "violation", None)
            # The output in flight was computed with the foreign block, so the client must not get it.
            request.drop_stale_output = True
        else:
            self._manager.free(request)
        self._end_with_error(request)
