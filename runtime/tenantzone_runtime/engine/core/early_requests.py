"""Assigns requests that arrived before any zone was declared to a special zone when the first zone is declared."""

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from tenantzone_runtime.engine.blocks.requests import state_of
from tenantzone_runtime.engine.core.binding import NO_SESSIONS
from tenantzone_runtime.engine.core.media_requests import MediaRequests
from tenantzone_runtime.engine.errors import BindingError
from tenantzone_runtime.engine.queues.load_queue import LoadQueue


class EarlyRequests:
    """The requests of one engine that arrived before any zone was declared.

    Args:
        scheduler: the scheduler.
        loads: the queue of requests whose loads from a tier have begun.
        media: counts requests with images, sounds or videos.
    """

    def __init__(self, scheduler: Scheduler, loads: LoadQueue, media: MediaRequests) -> None:
        self._scheduler = scheduler
        self._media = media
        self._queue = loads
        self._loads: set[Request] = set()
        """Early requests that began to load without blocks for the rest of the prompt."""

    def adopt(self) -> None:
        """Bind the early requests to a special zone that no config declares. Do nothing if no zone is declared yet."""
        scheduler, tenancy = self._scheduler, self._scheduler.tenancy
        if not tenancy.ledger.zones:
            return
        early = [request for request in scheduler.requests.values() if not scheduler.is_refused(request)]
        if not early:
            return
        zone = tenancy.zone_of_early_requests(len(early))
        for request in early:
            request.zone, request.peak = zone, 0
            self._media.arrived(request, zone)
        for request in scheduler.running:
            scheduler.kv_cache_manager.processed.adopted(request)
        scheduler.block_pool.adopt_blocks(zone)
        scheduler.waiting.adopt()
        self._loads.update(self._queue)
        for request in early:
            if request.resumable:
                scheduler.refuse(request, BindingError("unsupported", None, NO_SESSIONS))
                scheduler.end_with_error(request)

    def send_back_loads(self) -> None:
        """Return early requests whose loads have ended to the waiting queue. Their loaded blocks stay cached.

        Such a request may lack blocks for the rest of its prompt, and must wait for these blocks like other requests.
        """
        if not self._loads:
            return
        scheduler = self._scheduler
        self._loads.intersection_update(self._queue)
        for request in [each for each in self._loads if scheduler._handle_blocked_waiting_request(each)]:
            self._loads.discard(request)
            self._queue.remove_request(request)
            scheduler._inflight_prefills.discard(request)
            scheduler.deferred_waiting.discard(request)
            scheduler.kv_cache_manager.free(request)
            request.num_computed_tokens = state_of(request).loaded_tokens = 0
            scheduler.waiting.prepend_request(request)
